//! Changing a pod template: every override form compiles to edits, and every edit remembers where it came from. No I/O.
