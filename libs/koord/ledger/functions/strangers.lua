-- Names without a column: what pods and units ask for though no node offers it and no quota limits it.
--
-- Anybody may write such names, so asking gives no column: all of them are added up in one column, which no node has room
-- in and no quota limits. Only a limit gives a column. What records hold of the name is moved into it then, so that every
-- sum is what it would be had the column always been; for this the uids of such records are kept in a set.

local function has_room(L)
  return L.ncolumns - (L.columns[OTHERS] and 1 or 0) < MAX_COLUMNS - 1
end

-- Whether a record holds anything of a name without a column.
local function is_strange(L, takes)
  for i = 1, #takes do
    for resource in pairs(takes[i][2]) do
      if not L.columns[resource] then return true end
    end
  end
  return false
end

writers[#writers + 1] = function(L)
  if not L.columns[OTHERS] then return end
  local enters, leaves = {}, {}
  for uid in pairs(L.dirty_records) do
    local rec = L.records[uid]
    if not rec then
      leaves[#leaves + 1] = uid
    elseif L.strange and is_strange(L, takes_of(rec[REC.TAKES])) then
      enters[#enters + 1] = uid
    end
  end
  for _, uid in ipairs(L.familiar) do
    if not L.dirty_records[uid] then leaves[#leaves + 1] = uid end
  end
  write(L, 'SADD', ':strangers', enters)
  write(L, 'SREM', ':strangers', leaves)
end

-- What records hold of the names in `given` goes from the shared column to theirs. Before anything else was changed.
local function move_into(L, given)
  local uids, names, moves = redis.call('SMEMBERS', L.key .. ':strangers'), {}, {}
  fetch_records(L, uids)
  for _, uid in ipairs(uids) do
    local rec = L.records[uid]
    local takes = rec and takes_of(rec[REC.TAKES]) or {}
    for i = 1, #takes do
      local part = rec[REC.STATE] == OBSERVED and USED or HOLD
      for resource, amount in pairs(takes[i][2]) do
        if given[resource] then
          names[#names + 1] = takes[i][1]
          moves[#moves + 1] = {takes[i][1], L.columns[resource], part, bounded(amount)}
        end
      end
    end
    if not is_strange(L, takes) then L.familiar[#L.familiar + 1] = uid end
  end
  fetch_items(L, names)
  for _, move in ipairs(moves) do
    local name, part, amount = move[1], move[3], move[4]
    local v = L.items[name]
    local from, to = base(name, v, L.columns[OTHERS]) + part, base(name, v, move[2]) + part
    v[from], v[to] = v[from] - amount, v[to] + amount
    L.dirty[name] = v
  end
  -- Nobody has more or less room by this: what the call changes is told from here on.
  for _, name in ipairs(names) do
    local v = L.items[name]
    L.raw[name] = struct.pack(doubles(#v), unpack(v))
  end
end

-- Columns for all names that these limits are of: the first thing a call does, while nothing was added up yet. Answers
-- {item, how many names there was no column for, one of them} where columns have run out: the item does not limit those.
local function give_columns(L, observations)
  local given, nameless = {}, {}
  for i = 1, #observations do
    local o = observations[i]
    if o[1] == 'N' or o[1] == 'L' then
      local without, one = 0, ''
      for resource in pairs(o[3]) do
        if L.columns[resource] == nil and resource ~= OTHERS then
          if has_room(L) then
            new_column(L, resource)
            given[resource] = true
          else
            without = without + 1
            if one == '' or resource < one then one = resource end
          end
        end
      end
      if without > 0 then nameless[#nameless + 1] = {o[2], without, one} end
    end
  end
  if next(given) and L.columns[OTHERS] then move_into(L, given) end
  return nameless
end
