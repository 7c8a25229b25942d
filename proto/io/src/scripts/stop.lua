-- CANCEL and EXPIRE (DESIGN 4.1 step 5, 4.3). KEYS: x, a, k. ARGV: what, mark, mark_ttl_ms.
--   cancel  sets the mark, whoever holds the lease
--   expire  sets the mark only where nobody holds it and nobody ever claimed it
--   end     sets the mark only where nobody holds it
-- An earlier mark stays: the first reason is the one that is stored.
-- Answers: the lease's value (or an empty string), claims so far, now in ms.
local time = redis.call('TIME')
local now_ms = math.floor((tonumber(time[1]) * 1000000 + tonumber(time[2])) / 1000)
local held = redis.call('GET', KEYS[1]) or ''
local claims = tonumber(redis.call('HGET', KEYS[2], 'n') or '0')
local may = ARGV[1] == 'cancel' or (held == '' and (ARGV[1] == 'end' or claims <= 0))
if may then redis.call('SET', KEYS[3], ARGV[2], 'NX', 'PX', ARGV[3]) end
return {held, claims, now_ms}
