//! Postrider's benchmarks: each against named baselines in the same run.

fn main() {}
