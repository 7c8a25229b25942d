#!/bin/sh
# Takes the text out of its JSON string, escapes undone, and counts it. Bytes, whatever the locale.
set -eu
LC_ALL=C
export LC_ALL

text=$(sed -nE 's/.*"text" *: *"(([^"\\]|\\.)*)".*/\1/p')
printf '%s\n' "$text" | awk '
function hex(digits,    i, n) {
    n = 0
    for (i = 1; i <= length(digits); i++)
        n = n * 16 + index("0123456789abcdef", tolower(substr(digits, i, 1))) - 1
    return n
}
# Bytes of a code point in UTF-8. The word separators are kept; a NUL counts as one byte of a word.
function utf8(point) {
    if (point == 9 || point == 10 || point == 13 || point == 32) return sprintf("%c", point)
    if (point < 128) return "x"
    if (point < 2048) return "xx"
    if (point < 65536) return "xxx"
    return "xxxx"
}
function unescape(text,    out, at, kind, point) {
    out = ""
    while ((at = index(text, "\\")) > 0) {
        out = out substr(text, 1, at - 1)
        kind = substr(text, at + 1, 1)
        text = substr(text, at + 2)
        if (kind == "n") out = out "\n"
        else if (kind == "t") out = out "\t"
        else if (kind == "r") out = out "\r"
        else if (kind == "u") {
            point = hex(substr(text, 1, 4))
            text = substr(text, 5)
            # The first half of a pair: the second half follows as \uXXXX.
            if (point >= 55296 && point < 56320 && substr(text, 1, 2) == "\\u") {
                point = 65536
                text = substr(text, 7)
            }
            out = out utf8(point)
        } else out = out "x"
    }
    return out text
}
{
    text = unescape($0)
    bytes = length(text)
    words = split(text, list, /[ \t\r\n]+/)
    if (words > 0 && list[1] == "") words--
    if (words > 0 && text ~ /[ \t\r\n]$/) words--
    lines = gsub(/\n/, "\n", text)
    if (bytes > 0 && text !~ /\n$/) lines++
    printf "{\"lines\":%d,\"words\":%d,\"bytes\":%d}\n", lines, words, bytes
}'
