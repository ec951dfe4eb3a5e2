//! Postrider's test kit: memory store and broker, contract suites, fault scripts, history checker.
