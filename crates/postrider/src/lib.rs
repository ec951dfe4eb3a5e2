//! Change your database and tell the world in one atomic act; act once on what you hear.
