#!/bin/sh
# The manual page of an example program, from what it says to --help:  man.sh HELP2MAN PROGRAM NAME VERSION "what it does"
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
LC_ALL=C.UTF-8
export LC_ALL
# help2man wants "Usage: NAME" and an option's value next to it.
"$2" --help | sed -E -e "s/^usage: ([a-z_]+)/Usage: $3/" -e 's/^(  --[a-z0-9-]+) +([A-Z][A-Z0-9|]*|[a-z0-9]+\|[a-z0-9|]+) +/\1 \2   /' \
    -e '/^  --/!s/^  (-[a-z]) /  \1 /' >"$work/help"
printf '#!/bin/sh\ncat "%s/help"\n' "$work" >"$work/$3"
chmod +x "$work/$3"
"$1" --no-info --no-discard-stderr --locale=C.UTF-8 --manual=libminimind --source="libminimind $4" \
    --version-string="$4" --name="$5" "$work/$3"
