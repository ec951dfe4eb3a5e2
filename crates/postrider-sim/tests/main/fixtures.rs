//! Every fixture does what it says.

use std::path::Path;

use postrider_sim::{fixture, planted};

use crate::runner;

#[test]
fn a_mended_bug_stays_mended_and_a_planted_one_is_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture::FOLDER);
    let (runner, known) = (runner(), planted::all());
    let all = fixture::all(&folder).unwrap();
    assert!(!all.is_empty(), "no fixture in {}", folder.display());
    let wrong: Vec<String> = all
        .into_iter()
        .filter_map(|(name, fixture)| {
            let result = fixture.replay(&runner, &known);
            result.err().map(|reason| format!("{name}: {reason}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
