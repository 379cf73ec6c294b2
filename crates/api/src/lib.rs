//! Formats of headcni that cross a process border.
