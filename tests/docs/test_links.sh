#!/bin/sh
# Links of the documents lead somewhere: in the source tree, and where they are installed.
#
#     test_links.sh SOURCE_ROOT BUILD_ROOT MESON      MESON may be empty: nothing is installed
# shellcheck disable=SC2016 # backquotes are Markdown's
set -u
root=$1
build=$2
meson=$3
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

# Of a file, one a line: what stands in [](…), outside of code, and in href="…" and src="…".
links() {
    awk '/^```/ { code = !code } !code' "$1" | sed 's/`[^`]*`//g' | grep -oE '\]\([^) ]+\)|(href|src)="[^"]+"' |
        sed -E 's/^\]\(//; s/\)$//; s/^(href|src)="//; s/"$//' | grep -vE '^[a-z]+:'
}

# What a headline is called in a link: small letters, figures, "-" and "_"; a blank is a "-".
anchors() {
    awk '/^```/ { code = !code } !code && /^#+ /' "$1" | sed -E 's/^#+ //' | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'
}

# Everything below the directories and files named.
links_hold() {
    find "$@" -name '*.md' -o -name '*.html' | sort >"$work/pages"
    while read -r page; do
        links "$page" >"$work/links"
        while read -r link; do
            target=${link%%#*}
            [ -z "$target" ] && target=$page || target=$(dirname "$page")/$target
            if [ ! -e "$target" ]; then
                echo "$page: $link: no such file"
            elif [ "$link" != "${link#*#}" ] && ! anchors "$target" | grep -qxF -- "${link#*#}"; then
                echo "$page: $link: no such headline"
            fi
        done <"$work/links"
    done <"$work/pages" >"$work/dead"
    nothing <"$work/dead" && [ "$(wc -l <"$work/pages")" -gt 8 ]
}

installs() {
    "$meson" install -C "$build" --no-rebuild --quiet --destdir "$work/tree" && documents=$(find "$work/tree" -path '*/doc/minimind')
}

finds_dead_links() {
    mkdir "$work/bad"
    for page in 1 2 3 4 5 6 7 8 9; do
        printf '# A b, c\n\n[here](#a-b-c) `[not](one)`\n' >"$work/bad/$page.md"
    done
    links_hold "$work/bad" || return 1
    echo '[there](10.md)' >>"$work/bad/3.md"
    ! links_hold "$work/bad" && sed -i '$d' "$work/bad/3.md" && echo '[there](4.md#a)' >>"$work/bad/5.md" &&
        ! links_hold "$work/bad"
}

check "a link to nothing and one to no headline are found" finds_dead_links
check "links hold in the source tree" links_hold "$root/README.md" "$root/CHANGELOG.md" "$root/CONTRIBUTING.md" "$root/docs" \
    "$root/examples"
if [ -n "$meson" ]; then
    check "meson install brings the documents" installs
    check "links hold where the documents are installed" links_hold "$documents"
    check "what Python leaves is not installed" sh -c "find '$documents' -name '__pycache__' | grep . && exit 1 || exit 0"
else
    skip "links hold where the documents are installed" "no meson"
fi
finish
