-- Whether a claim is admissible: its sums against what is free, and why not.

-- Add to held what the members take (sign 1), or take it back (-1), up to member `last` and its take `last_take`.
-- Adding stops at the first amount that a checked take leaves below zero; the place is returned.
local function hold(L, members, sign, last, last_take)
  local items, columns = L.items, L.columns
  for i = 1, last do
    local takes = members[i][6]
    for j = 1, i == last and last_take or #takes do
      local take, short = takes[j], false
      local name, checked = take[1], take[3]
      local v = items[name]
      if sign > 0 and checked and v[1] ~= OPEN then short = true end
      for resource, amount in pairs(take[2]) do
        local b = HEAD + ((columns[resource] or column(L, resource)) - 1) * WIDTH
        if v[b + 1] == nil then lengthen(name, v, b) end
        if amount > MAX_AMOUNT or amount < -MAX_AMOUNT then
          short = true -- never added: taking it back would not be exact
        else
          local held = v[b + HOLD] + sign * amount
          v[b + HOLD] = held
          if sign > 0 and amount > 0 and v[b + LIMIT] - v[b + USED] - held - v[b + NESTED] < 0 then
            short = short or checked or 'unchecked'
          end
        end
      end
      v[2] = v[2] + sign
      if short == 'unchecked' then
        -- It counts if another take of this claim checks the same item.
        short = false
        for k = 1, #members do
          for _, other in ipairs(members[k][6]) do if other[1] == name and other[3] then short = true end end
        end
      end
      if short and sign > 0 then return i, j end
    end
  end
end

local function by_key(a, b) return a[2] < b[2] end

-- The sums of a claim: items in order, amounts by item and resource, which of them are checked, which items are closed.
local function needs_of(L, members)
  local order, sums, checks, closed = {}, {}, {}, {}
  for i = 1, #members do
    for _, take in ipairs(members[i][6]) do
      local name, checked = take[1], take[3]
      if not sums[name] then sums[name], checks[name], order[#order + 1] = {}, {}, name end
      if checked and L.items[name][1] ~= OPEN then closed[name] = true end
      for resource, amount in pairs(take[2]) do
        local sum = (sums[name][resource] or 0) + amount
        sums[name][resource] = sum
        if checked or sum > MAX_AMOUNT then checks[name][resource] = true end
      end
    end
  end
  return {order = order, sums = sums, checks = checks, closed = closed}
end

-- Every reason why the sums are not admissible, with what is `reserved` to nominations, by item.
local function shorts_of(L, needs, reserved)
  local order, sums, shorts = needs.order, needs.sums, {}
  for i = 1, #order do
    local name = order[i]
    local v, here = L.items[name], {}
    if needs.closed[name] then
      here[1] = {name, '', 'closed', 0, 0, v[3], ''}
    else
      for resource in pairs(needs.checks[name]) do
        local sum, free = sums[name][resource], free_of(name, v, column(L, resource))
        local kept = reserved and reserved[name]
        local left = free - (kept and kept.sums[resource] or 0)
        if sum > 0 and (left < sum or sum > MAX_AMOUNT) then
          local nomination = free >= sum and sum <= MAX_AMOUNT
          here[#here + 1] = {name, resource, nomination and 'nomination' or 'amount', sum,
            math.min(math.max(left, 0), MAX_AMOUNT), v[3], nomination and kept.holder or ''}
        end
      end
      table.sort(here, by_key)
    end
    for j = 1, #here do shorts[#shorts + 1] = here[j] end
  end
  return shorts
end
