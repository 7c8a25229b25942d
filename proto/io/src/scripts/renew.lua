-- Renews the leases of one worker (DESIGN 4.2 step 6). Only a holder inside its own time may ask.
-- KEYS: for each lease x and k. ARGV: ttl_ms, then for each lease its value `claim|worker|fence`.
-- Answers for each: 1 ours, 0 another's or done; plus 2 where the call is marked.
local out = {}
for i = 1, #KEYS / 2 do
  local x, k, value = KEYS[2 * i - 1], KEYS[2 * i], ARGV[i + 1]
  local held = redis.call('GET', x)
  local answer = 0
  if held == value then
    redis.call('PEXPIRE', x, ARGV[1])
    answer = 1
  elseif not held then
    -- The store has lost it.
    redis.call('SET', x, value, 'PX', ARGV[1])
    answer = 1
  end
  if redis.call('EXISTS', k) == 1 then answer = answer + 2 end
  out[i] = answer
end
return out
