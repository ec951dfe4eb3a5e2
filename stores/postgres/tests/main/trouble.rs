//! What a server and a network do to a store in operation, and that it goes on by itself.
