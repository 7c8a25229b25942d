#!/bin/sh
# Canned forecasts: the same answer every time, so that a demonstration can be compared.
set -eu

input=$(cat)
# Inside a JSON string a quote is escaped, so "city": in plain quotes can only be the key itself.
city=$(printf '%s\n' "$input" | sed -nE 's/.*"city" *: *"(([^"\\]|\\.)*)".*/\1/p')
days=$(printf '%s\n' "$input" | sed -nE 's/.*"days" *: *([0-9]+).*/\1/p')

# A week a city: sky,high,low.
case $city in
Lisbon) week='sunny,24,16 sunny,25,17 cloudy,22,15 rain,19,14 cloudy,21,14 sunny,23,15 sunny,26,17' ;;
Oslo) week='cloudy,9,3 rain,8,4 rain,7,2 cloudy,9,2 sunny,11,1 sunny,12,3 cloudy,10,4' ;;
Kyoto) week='sunny,21,11 sunny,22,12 sunny,23,12 cloudy,20,13 rain,17,12 rain,16,11 sunny,20,10' ;;
*)
    echo "no forecast for $city: only Lisbon, Oslo and Kyoto are known" >&2
    exit 1
    ;;
esac

printf '{"city":"%s","days":[' "$city"
day=1
for entry in $week; do
    [ "$day" -le "$days" ] || break
    [ "$day" -eq 1 ] || printf ','
    sky=${entry%%,*}
    range=${entry#*,}
    printf '{"day":%d,"sky":"%s","highC":%d,"lowC":%d}' "$day" "$sky" "${range%,*}" "${range#*,}"
    day=$((day + 1))
done
printf ']}\n'
