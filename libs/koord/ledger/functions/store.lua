-- The data and one call's view of it.
--
-- A call loads what it needs in bulk, works on Lua tables and writes everything at its end (flush), so every check comes
-- before the first write and a batch costs a dozen commands. All keys share the hash tag of keys[1]:
--
--   :meta     hash  epoch, open, run_id, token (last given), held, binding, observed (numbers of records), nominated;
--                   stream, folded: epoch and sequence of the state stream that the reconciler has folded;
--                   placed, repelled: how many lines :placements and :repellers ever had
--   :columns  hash  resource name -> column of the vectors below, ledger-wide, never reused within an epoch
--   :strangers set  uids of records that hold something of a name without a column, see strangers.lua
--   :items    hash  item -> vector of doubles: state, refs, version, 0, then per column limit, used, held, nested
--                   (version: of the node's guard; nested: room of the reservations nested in the item, 0 until then)
--   :seen     hash  item -> resourceVersion of the object that its limits came from
--   :records  hash  uid -> msgpack array, see REC; fields may be appended
--   :claims   hash  claim -> msgpack array, see CLM; exists while a member is HELD or BINDING
--   :leases   zset  claim with HELD members -> end of its lease, ms
--   :renewals zset  incarnation -> its claims' leases last at least until, ms
--   :owners   hash  incarnation -> number of its claims with a lease
--   :guards   zset  guard of no node -> version, see guards.lua
--   :tickets  hash  group -> ticket of its first claim
--   :ticketed zset  group -> when it last made a claim, ms
--   :nominated    hash  uid -> msgpack array, see MEM in nominated.lua
--   :rooms        hash  node item -> msgpack {uids nominated to it}
--   :nominations  hash  offer -> msgpack array, see OFR; :offers zset offer -> until when, ms
--   :gone     zset  uid that ended -> until when that is remembered, ms
--   :slots    hash  slot -> holder (uid, or claim:<id>)
--   :roles    hash  role -> msgpack {highest epoch seen, incarnation}
--   :placements list lines of what was claimed lately, see placements.lua; :repellers list those that keep others off
--   :followers hash  incarnation -> when it asked last what others placed, ms
--   :expired  list  msgpack {claim, uids, reason, items} of expired claims, until the reconciler has told about them

local HELD, BINDING, OBSERVED = 1, 2, 3
local UNKNOWN, OPEN, CLOSED = 0, 1, 2
local HEAD, WIDTH = 4, 4
local LIMIT, USED, HOLD, NESTED = 1, 2, 3, 4
local REC = {STATE = 1, CLAIM = 2, TOKEN = 3, OWNER = 4, NAMESPACE = 5, NAME = 6, NODE = 7, TAKES = 8, DECISION = 9,
  ATTEMPTS = 10, RV = 11, TRACE = 12, SLOTS = 13, VIA = 14}
local CLM = {TOKEN = 1, OWNER = 2, STRICT = 3, PRIORITY = 4, TICKET = 5, HELD = 6, BINDING = 7, UIDS = 8, SLOTS = 9}
local CHUNK = 6000          -- Lua's unpack stops near 8,000 values
local SWEEP = 64            -- due leases looked at per call
local MAX_MEMBERS = 4096
local MAX_COLUMNS = 1000    -- a vector must fit on Lua's stack
local OTHERS = '*'          -- the column of all names without one, added up, see strangers.lua
local ALWAYS = {cpu = true, memory = true, pods = true, ['ephemeral-storage'] = true, disruptions = true}
local MAX_EXPIRED = 4096    -- reports kept for the reconciler
local MAX_AMOUNT = 9007199254740992
local COUNTER = {'held', 'binding', 'observed'}

-- A library lives as long as its server process, and so does the run_id.
local process_run_id
local function own_run_id()
  if not process_run_id then
    process_run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  end
  return process_run_id
end

local function enter(key)
  local time = redis.call('TIME')
  local meta = redis.call('HMGET', key .. ':meta', 'epoch', 'open', 'run_id', 'token', 'held', 'binding', 'observed',
    'nominated')
  local columns, raw = {}, redis.call('HGETALL', key .. ':columns')
  for i = 1, #raw, 2 do columns[raw[i]] = tonumber(raw[i + 1]) end
  local stored = meta[3] or ''
  return {
    key = key, now = time[1] * 1000 + math.floor(time[2] / 1000),
    epoch = tonumber(meta[1]) or 0, run_id = stored, begun = stored == own_run_id(),
    open = meta[2] == '1' and stored == own_run_id(),
    token = tonumber(meta[4]) or 0, counts = {tonumber(meta[5]) or 0, tonumber(meta[6]) or 0, tonumber(meta[7]) or 0},
    columns = columns, ncolumns = #raw / 2, new_columns = {},
    items = {}, raw = {}, dirty = {}, altered = {}, records = {}, dirty_records = {}, claims = {}, dirty_claims = {},
    leases = {}, owners = {}, slots = {}, dirty_slots = {}, marks = {}, gone = {}, seen = {}, dirty_seen = {},
    roles = {}, renewals = {}, pressed = {}, closed = {}, guards = {}, bumped = {},
    tickets = {}, dirty_tickets = {}, nominations = tonumber(meta[8]) or 0, nominated = {}, dirty_nominated = {},
    rooms = {}, dirty_rooms = {}, offers = {}, dirty_offers = {}, unreserved = {}, placements = {}, repellers = {},
    ended = {}, expired = {}, touched = false, strange = false, familiar = {},
  }
end

-- ---- bulk helpers ----

local function each_chunk(list, size, call)
  for first = 1, #list, size do call(first, math.min(first + size - 1, #list)) end
end

local function fetch(L, suffix, names, into, decode)
  local missing, asked = {}, {}
  for i = 1, #names do
    local name = names[i]
    if into[name] == nil and not asked[name] then
      asked[name] = true
      missing[#missing + 1] = name
    end
  end
  each_chunk(missing, CHUNK, function(first, last)
    local values = redis.call('HMGET', L.key .. suffix, unpack(missing, first, last))
    for i = 1, #values do decode(missing[first + i - 1], values[i]) end
  end)
end

local function write(L, command, suffix, args)
  each_chunk(args, CHUNK, function(first, last)
    redis.call(command, L.key .. suffix, unpack(args, first, last))
  end)
end

-- ---- items ----

local formats = {}
local function doubles(n)
  local format = formats[n]
  if not format then
    format = '<' .. string.rep('d', n)
    formats[n] = format
  end
  return format
end

local function is_node(name) return string.sub(name, 1, 5) == 'node/' end

local function no_limit(name)
  if is_node(name) then return 0 end
  return math.huge
end

local function fetch_items(L, names)
  fetch(L, ':items', names, L.items, function(name, value)
    if value then
      local n = #value / 8
      local v = {struct.unpack(doubles(n), value)}
      v[n + 1] = nil -- struct.unpack adds the position where it stopped
      L.items[name], L.raw[name] = v, value
    else
      L.items[name] = {UNKNOWN, 0, 0, 0}
    end
  end)
end

local function item(L, name)
  local v = L.items[name]
  if not v then
    fetch_items(L, {name})
    v = L.items[name]
  end
  return v
end

local function new_column(L, resource)
  local c = L.ncolumns + 1
  L.ncolumns, L.columns[resource] = c, c
  L.new_columns[#L.new_columns + 1] = resource
  L.new_columns[#L.new_columns + 1] = c
  return c
end

-- The column of a resource; of a name that nothing limits the one that all such names share, see strangers.lua.
local function column(L, resource)
  local c = L.columns[resource]
  if c then return c end
  if ALWAYS[resource] and L.ncolumns < MAX_COLUMNS - 1 then return new_column(L, resource) end
  L.strange = true
  return L.columns[OTHERS] or new_column(L, OTHERS)
end

-- The API lets anybody write a pod of 8 Ei; what is beyond exactness must not spoil the sum.
local function bounded(amount) return math.max(math.min(amount, MAX_AMOUNT), -MAX_AMOUNT) end

-- Make a vector long enough for the column that starts after b.
local function lengthen(name, v, b)
  local limit = no_limit(name)
  for at = #v, b, WIDTH do v[at + 1], v[at + 2], v[at + 3], v[at + 4] = limit, 0, 0, 0 end
end

-- Where column c of the vector starts, which is made long enough.
local function base(name, v, c)
  local b = HEAD + (c - 1) * WIDTH
  if v[b + 1] == nil then lengthen(name, v, b) end
  return b
end

local function free_of(name, v, c)
  local b = HEAD + (c - 1) * WIDTH
  if v[b + 1] == nil then return no_limit(name) end
  return v[b + LIMIT] - v[b + USED] - v[b + HOLD] - v[b + NESTED]
end

-- Add amounts to two parts (USED, HOLD) of an item, with their signs, and count the records that refer to it.
local function add(L, take, to_used, to_held, refs)
  local name, columns = take[1], L.columns
  local v = L.items[name] or item(L, name)
  for resource, amount in pairs(take[2]) do
    -- As in bounded, without a call for each.
    if amount > MAX_AMOUNT then amount = MAX_AMOUNT elseif amount < -MAX_AMOUNT then amount = -MAX_AMOUNT end
    local b = HEAD + ((columns[resource] or column(L, resource)) - 1) * WIDTH
    if v[b + 1] == nil then lengthen(name, v, b) end
    v[b + USED] = v[b + USED] + to_used * amount
    v[b + HOLD] = v[b + HOLD] + to_held * amount
  end
  v[2] = v[2] + refs
  L.dirty[name] = v
  if to_used + to_held ~= 0 then L.altered[name] = v end
  if to_used + to_held > 0 then L.pressed[name] = true end
end

local function charge(L, takes)
  for i = 1, #takes do add(L, takes[i], 1, 0, 1) end
end

local function discharge(L, takes, observed)
  for i = 1, #takes do add(L, takes[i], observed and -1 or 0, observed and 0 or -1, -1) end
end

-- From held to used: no sum changes.
local function settle(L, takes)
  for i = 1, #takes do add(L, takes[i], 1, -1, 0) end
end

-- Takes as packed by a client and stored by a record: {distinct amounts, {{item, number of its amounts, checked}, ...}}.
-- A quota chain's takes have equal amounts, which are then unpacked once.
local function takes_of(packed)
  local pair = cmsgpack.unpack(packed)
  local amounts, takes = pair[1], pair[2]
  for i = 1, #takes do takes[i][2] = amounts[takes[i][2]] end
  return takes
end

-- ---- records and claims ----

local function fetch_records(L, uids)
  fetch(L, ':records', uids, L.records, function(uid, value)
    L.records[uid] = value and cmsgpack.unpack(value) or false
  end)
end

local function record(L, uid)
  local rec = L.records[uid]
  if rec == nil then
    fetch_records(L, {uid})
    rec = L.records[uid]
  end
  return rec
end

local function fetch_claims(L, ids)
  fetch(L, ':claims', ids, L.claims, function(id, value)
    L.claims[id] = value and cmsgpack.unpack(value) or false
  end)
end

local function claim_of(L, id)
  local entry = L.claims[id]
  if entry == nil then
    fetch_claims(L, {id})
    entry = L.claims[id]
  end
  return entry
end

local function fetch_marks(L, uids)
  each_chunk(uids, CHUNK, function(first, last)
    local scores = redis.call('ZMSCORE', L.key .. ':gone', unpack(uids, first, last))
    for i = 1, #scores do
      local score = scores[i]
      L.marks[uids[first + i - 1]] = score and tonumber(score) >= L.now or false
    end
  end)
end

local function marked(L, uid)
  local mark = L.marks[uid]
  if mark == nil then
    fetch_marks(L, {uid})
    mark = L.marks[uid]
  end
  return mark
end

local function slot_holder(L, slot)
  local holder = L.slots[slot]
  if holder == nil then
    holder = redis.call('HGET', L.key .. ':slots', slot) or false
    L.slots[slot] = holder
  end
  return holder
end

local function set_slot(L, slot, holder)
  L.slots[slot] = holder
  L.dirty_slots[slot] = true
end

local function count(L, state, by) L.counts[state] = L.counts[state] + by end

local function put_record(L, uid, rec)
  L.records[uid] = rec
  L.dirty_records[uid] = true
end

local function put_claim(L, id, entry)
  L.claims[id] = entry
  L.dirty_claims[id] = true
end

local function set_lease(L, id, owner, lease, was_leased)
  if lease and not was_leased then L.owners[owner] = (L.owners[owner] or 0) + 1 end
  if not lease and was_leased then L.owners[owner] = (L.owners[owner] or 0) - 1 end
  L.leases[id] = lease
end

-- ---- end of a call ----

local function split(L, keys, values, pack)
  local set, del = {}, {}
  for name in pairs(keys) do
    local value = values[name]
    if value then
      set[#set + 1] = name
      set[#set + 1] = pack(value)
    else
      del[#del + 1] = name
    end
  end
  return set, del
end

local function same(value) return value end

-- What the parts below add to the end of a call.
local writers = {}

local function flush(L)
  local set, del = {}, {}
  for name, v in pairs(L.dirty) do
    if v[1] ~= OPEN and v[2] <= 0 then
      del[#del + 1] = name
      L.dirty_seen[name] = true
      L.seen[name] = false
    else
      set[#set + 1] = name
      set[#set + 1] = struct.pack(doubles(#v), unpack(v))
    end
  end
  write(L, 'HSET', ':items', set)
  write(L, 'HDEL', ':items', del)
  if #set > 0 then write(L, 'HSET', ':columns', L.new_columns) end
  set, del = split(L, L.dirty_records, L.records, cmsgpack.pack)
  write(L, 'HSET', ':records', set)
  write(L, 'HDEL', ':records', del)
  set, del = split(L, L.dirty_claims, L.claims, cmsgpack.pack)
  write(L, 'HSET', ':claims', set)
  write(L, 'HDEL', ':claims', del)
  set, del = split(L, L.dirty_slots, L.slots, same)
  write(L, 'HSET', ':slots', set)
  write(L, 'HDEL', ':slots', del)
  set, del = split(L, L.dirty_seen, L.seen, same)
  write(L, 'HSET', ':seen', set)
  write(L, 'HDEL', ':seen', del)
  set, del = {}, {}
  for id, lease in pairs(L.leases) do
    if lease then
      set[#set + 1] = lease
      set[#set + 1] = id
    else
      del[#del + 1] = id
    end
  end
  write(L, 'ZADD', ':leases', set)
  write(L, 'ZREM', ':leases', del)
  set = {}
  for uid, til in pairs(L.gone) do
    set[#set + 1] = til
    set[#set + 1] = uid
  end
  write(L, 'ZADD', ':gone', set)
  for i = 1, #writers do writers[i](L) end
  for owner, by in pairs(L.owners) do
    if by ~= 0 and redis.call('HINCRBY', L.key .. ':owners', owner, by) <= 0 then
      redis.call('HDEL', L.key .. ':owners', owner)
    end
  end
  for role, holder in pairs(L.roles) do redis.call('HSET', L.key .. ':roles', role, cmsgpack.pack(holder)) end
  for _, report in ipairs(L.expired) do redis.call('RPUSH', L.key .. ':expired', cmsgpack.pack(report)) end
  if #L.expired > 0 then redis.call('LTRIM', L.key .. ':expired', -MAX_EXPIRED, -1) end
  if L.touched or next(L.dirty_records) then
    redis.call('HSET', L.key .. ':meta', 'token', L.token, 'held', L.counts[HELD], 'binding', L.counts[BINDING],
      'observed', L.counts[OBSERVED])
  end
end

-- The functions by the names that clients call; a later version of one gets a name of its own. Only claims and renewals
-- need room: everything else ends or settles what is there, and must run out of memory too.
local function register(name, callback, ...)
  redis.register_function{function_name = name, callback = callback, flags = {...}}
end
