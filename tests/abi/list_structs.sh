#!/bin/sh
# A line X(mm_batch, MM_BATCH_INIT) for every struct of the headers in DIRECTORY that has an initialiser.
#
#     list_structs.sh DIRECTORY
sed -nE 's/^#define (MM_[A-Z0-9_]+_INIT) +\{ *sizeof\((mm_[a-z0-9_]+)\).*/X(\2, \1)/p' "$1"/*.h
