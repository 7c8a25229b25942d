-- Takes and gives back many leases in one round trip (DESIGN 4.2 steps 3 and 8). In order.
-- KEYS: for each operation the lease x, the claims a, the mark k.
-- ARGV: ttl_ms, claims_ttl_ms, done_ms, then for each operation: what, claim, worker, span.
--   acquire    own claim, held or done, marked, else count, fence, take
--   give_back  the tool never started: lease and count go
--   release    the tool was stopped: the lease goes, the count stays
--   done       a result is stored: leave `done` for a while, forget the claims
--   delivered  a cancel has reached the tool
--   words      what the tool said last, in place of the span
-- Of a: n claims, f last fence, s and p the last two spans, t first claim, c when a
-- cancel was delivered, h<n> and w<n> each claim and its
-- last words.
-- Answers one list an operation, its first element a word.
local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now_ms = math.floor(now_us / 1000)
local ttl, claims_ttl, done_ms = ARGV[1], ARGV[2], ARGV[3]
local out = {}
for i = 1, #KEYS / 3 do
  local x, a, k = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local what, claim, worker, span = ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3]
  local held = redis.call('GET', x)
  local own = held and string.sub(held, 1, #claim + 1) == claim .. '|'
  if what == 'acquire' then
    if own then
      local fence = string.match(held, '|(%d+)$')
      local n = tonumber(redis.call('HGET', a, 'n') or '1')
      local first = redis.call('HGET', a, 't') or string.format('%.0f', now_ms)
      out[i] = {'granted', fence, n, redis.call('HGET', a, 'p') or '', now_ms, first}
    elseif held == 'done' then
      out[i] = {'done'}
    elseif held then
      out[i] = {'held', redis.call('PTTL', x)}
    else
      local mark = redis.call('GET', k)
      if mark then
        out[i] = {'marked', mark, tonumber(redis.call('HGET', a, 'n') or '0'), now_ms}
      else
        local n = redis.call('HINCRBY', a, 'n', 1)
        local fence = now_us
        local last = tonumber(redis.call('HGET', a, 'f') or '0')
        if last >= fence then fence = last + 1 end
        local text = string.format('%.0f', fence)
        local previous = redis.call('HGET', a, 's') or ''
        local record = claim .. '|' .. worker .. '|' .. text .. '|' .. string.format('%.0f', now_ms) .. '|' .. span
        redis.call('HSET', a, 'f', text, 'p', previous, 's', span, 'h' .. n, record)
        redis.call('HSETNX', a, 't', string.format('%.0f', now_ms))
        local first = redis.call('HGET', a, 't')
        redis.call('PEXPIRE', a, claims_ttl)
        redis.call('SET', x, claim .. '|' .. worker .. '|' .. text, 'PX', ttl)
        out[i] = {'granted', text, n, previous, now_ms, first}
      end
    end
  elseif what == 'give_back' then
    if own then
      redis.call('DEL', x)
      local n = redis.call('HINCRBY', a, 'n', -1)
      redis.call('HDEL', a, 'h' .. (n + 1), 'w' .. (n + 1))
      redis.call('HSET', a, 's', redis.call('HGET', a, 'p') or '')
      if n < 0 then redis.call('HSET', a, 'n', 0) end
      -- Nothing has started yet: the time of all attempts has not begun.
      if n <= 0 then redis.call('HDEL', a, 't') end
      out[i] = {'given'}
    else
      out[i] = {'not_ours'}
    end
  elseif what == 'release' then
    if own then redis.call('DEL', x) end
    out[i] = {'ok'}
  elseif what == 'delivered' then
    if own then redis.call('HSET', a, 'c', string.format('%.0f', now_ms)) end
    out[i] = {'ok'}
  elseif what == 'words' then
    if own then redis.call('HSET', a, 'w' .. (redis.call('HGET', a, 'n') or '1'), span) end
    out[i] = {'ok'}
  else
    if own or not held then redis.call('SET', x, 'done', 'PX', done_ms) end
    redis.call('DEL', a)
    out[i] = {'ok'}
  end
end
return out
