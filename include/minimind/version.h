/**
 * @file version.h
 * The version a program was compiled against; mm_version() tells the one it runs with.
 */
#ifndef MINIMIND_VERSION_H
#define MINIMIND_VERSION_H

/** The parts of the version, as in MAJOR.MINOR.PATCH. */
#define MM_VERSION_MAJOR 0
#define MM_VERSION_MINOR 1
#define MM_VERSION_PATCH 0

/** As one number that compares in order: 0x010203 is 1.2.3. */
#define MM_VERSION ((MM_VERSION_MAJOR << 16) | (MM_VERSION_MINOR << 8) | MM_VERSION_PATCH)

#endif
