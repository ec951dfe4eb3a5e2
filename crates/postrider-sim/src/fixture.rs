//! A run that found something, kept: `fixtures/NAME.json`.
//!
//! The scenario of a bug that was mended must pass for ever. One that shows a planted bug must fail
//! while that is planted, and pass without it: else it shows something else.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, Defect, Options, Runner};
use crate::planted::Planted;
use crate::scenario::Scenario;

/// Where the fixtures stand, in the crate's folder.
pub const FOLDER: &str = "fixtures";

/// A scenario and what it showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// The bug, in a sentence.
    pub bug: String,
    /// When it still fails; nothing for a bug that is mended.
    pub fails: Option<Fails>,
    /// What runs.
    pub scenario: Scenario,
}

/// When a fixture fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fails {
    /// The planted bug, by the name that it has in the code.
    pub mutant: String,
}

impl Fixture {
    /// Reads one.
    ///
    /// # Errors
    /// In a sentence, if there is no such file or it is no fixture.
    pub fn read(path: &Path) -> Result<Fixture, String> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| {
            format!("{}: {error}; a fixture of an older shape must be drawn anew", path.display())
        })
    }

    /// Writes it to a folder, which is made if need be; answers with the path.
    ///
    /// # Errors
    /// In a sentence, if the file cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> Result<PathBuf, String> {
        let path = folder.join(format!("{name}.json"));
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
        text.push('\n');
        fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        fs::write(&path, text).map_err(|error| failed(&error))?;
        Ok(path)
    }

    /// The name of a file for a defect: from the planted bug, what was broken, and the seed.
    pub fn name(defect: &Defect, mutant: Option<&str>, seed: u64) -> String {
        let mut name = String::new();
        for symbol in mutant.unwrap_or_default().chars() {
            if symbol.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(symbol.to_lowercase());
        }
        if !name.is_empty() {
            name.push('-');
        }
        format!("{name}{}-seed-{seed}", defect.kind().to_lowercase())
    }

    /// Runs it as it should be run: without the planted bug, and with it if it is known here. Says
    /// whether all of it could be run.
    ///
    /// # Errors
    /// In a sentence, what is not as it should be.
    pub fn replay(&self, runner: &Runner, known: &[Planted]) -> Result<bool, String> {
        let run = |mutant| Attempt::at(runner, &self.scenario, &Options { trace: false, mutant });
        if let Some(defect) = run(None).defect {
            return Err(format!("fails, and nothing is planted: {defect}"));
        }
        let Some(Fails { mutant }) = &self.fails else { return Ok(true) };
        if known.is_empty() {
            return Ok(false);
        }
        let Some(planted) = known.iter().find(|planted| planted.name == mutant) else {
            return Err(format!("there is no planted bug {mutant}"));
        };
        match run(Some(planted.name)).defect {
            Some(_) => Ok(true),
            None => Err(format!("{mutant} is planted, and the run passes: it shows nothing")),
        }
    }
}

/// The fixtures of a folder, by name.
///
/// # Errors
/// In a sentence, if one cannot be read.
pub fn all(folder: &Path) -> Result<Vec<(String, Fixture)>, String> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut paths: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    paths.iter().map(|path| Ok((name(path), Fixture::read(path)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::Invariant;

    use super::*;
    use crate::outcome::{Failure, Outcome, Tally};

    fn fixture(mutant: Option<&str>) -> Fixture {
        let fails = mutant.map(|mutant| Fails { mutant: mutant.to_owned() });
        Fixture { bug: "a later one overtakes".to_owned(), fails, scenario: Scenario::of(9) }
    }

    /// A world that fails where this is so.
    fn fails_where(broken: fn(&Options) -> bool) -> Runner {
        Arc::new(move |_, options| Outcome {
            failure: broken(options).then(|| Failure::new(Invariant::KeyOrder, "2 before 1")),
            fingerprint: 0,
            story: Vec::new(),
            tally: Tally::default(),
            reached: Vec::new(),
        })
    }

    #[test]
    fn a_mended_bug_must_pass_and_a_planted_one_fail_only_while_it_is_planted() {
        let (always, never) = (fails_where(|_| true), fails_where(|_| false));
        let planted = fails_where(|options| options.mutant == Some("RetryOvertakes"));
        let known = ["RetryOvertakes", "BreakerDrops"].map(|name| Planted { name, mistake: "" });
        let replay = |mutant, world: &Runner| fixture(mutant).replay(world, &known);
        assert!(replay(None, &never).unwrap());
        replay(None, &always).unwrap_err();
        assert!(replay(Some("RetryOvertakes"), &planted).unwrap());
        replay(Some("RetryOvertakes"), &always).unwrap_err();
        replay(Some("RetryOvertakes"), &never).unwrap_err();
        replay(Some("BreakerDrops"), &planted).unwrap_err();
        replay(Some("NobodyKnowsIt"), &planted).unwrap_err();
        // Without probes half of it is run.
        assert!(!fixture(Some("RetryOvertakes")).replay(&never, &[]).unwrap());
    }

    #[test]
    fn what_is_written_is_read_again_and_a_stranger_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = fixture(Some("BreakerDrops")).write(folder.path(), "one").unwrap();
        assert_eq!(
            all(folder.path()).unwrap(),
            [("one".to_owned(), fixture(Some("BreakerDrops")))]
        );
        fs::write(path, r#"{"bug": "", "fails": null, "scenario": {"seed": 1}}"#).unwrap();
        assert!(all(folder.path()).unwrap_err().contains("one.json"));
    }

    #[test]
    fn a_name_says_what_was_broken_and_how_to_find_it() {
        let defect = Defect::Broken(Failure::new(Invariant::KeyOrder, ""));
        assert_eq!(Fixture::name(&defect, None, 17), "inv-3-seed-17");
        let name = Fixture::name(&defect, Some("RetryOvertakes"), 17);
        assert_eq!(name, "retry-overtakes-inv-3-seed-17");
    }
}
