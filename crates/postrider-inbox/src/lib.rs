//! Postrider's consumer engine: acts once on a message that may come twice.
