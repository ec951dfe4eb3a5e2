//! The same seed is the same run; another one is another.

use postrider_sim::scenario::Scenario;
use postrider_sim::world::{Options, run};

#[test]
fn the_same_seed_is_the_same_story_to_the_last_line() {
    for seed in 0..2 {
        let told = || run(&Scenario::of(seed), &Options { trace: true, mutant: None });
        let one = told();
        // Another thread has other hashes.
        let two = std::thread::scope(|scope| scope.spawn(told).join().unwrap());
        assert!(!one.story.is_empty());
        for (number, (first, second)) in (1..).zip(one.story.iter().zip(&two.story)) {
            assert_eq!(first, second, "seed {seed}, line {number}");
        }
        assert_eq!(one.fingerprint, two.fingerprint, "seed {seed}");
        assert_eq!(one.tally, two.tally, "seed {seed}");
    }
}

#[test]
fn whether_the_story_is_told_changes_nothing() {
    let told = run(&Scenario::of(5), &Options { trace: true, mutant: None });
    let untold = run(&Scenario::of(5), &Options { trace: false, mutant: None });
    assert!(untold.story.is_empty());
    assert_eq!(told.fingerprint, untold.fingerprint);
}

#[test]
fn another_seed_is_another_run() {
    let fingerprint = |seed| run(&Scenario::of(seed), &Options::default()).fingerprint;
    assert_ne!(fingerprint(6), fingerprint(7));
}

#[test]
fn a_scenario_is_data_and_comes_back_as_it_was() {
    for scenario in (0..100).map(Scenario::of) {
        let text = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario);
    }
}
