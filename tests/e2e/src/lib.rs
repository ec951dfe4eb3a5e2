//! Tests of Postrider with real processes, real files, and SIGKILL.
