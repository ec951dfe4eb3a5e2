//! The arguments of the program.

use std::path::PathBuf;

use postrider_sim::planted::Planted;

/// How it is called.
pub(super) const USAGE: &str = "\
usage: cargo x sim …

  --seed N [--trace] [--mutant NAME]
      one world; with --trace, everything that happened in it
  --fixture PATH [--trace]
      a kept scenario; with the planted bug that it is about, if there is one
  --seeds N [--from M] [--mutant NAME] [--minutes T] [--keep] [--bless]
      many worlds; a failing one is made smaller and stored: among the fixtures with --keep,
      else in target/sim-failures
  --coverage [--seeds N] [--bless]
      which states and transitions were reached, and which never were
  --mutants [--seeds N] [--mutant NAME] [--bless]
      for each planted bug, the first seed that finds it
  --twice N [--from M]
      each world twice, compared line by line
  --gate
      what `cargo x test` runs: fixtures, seeds, planted bugs

  --jobs J   threads; all processors unless it is given
  --bless    write the table into docs/internals/simulator.md
";

/// Seeds of `--coverage` and `--mutants`, unless another number is given: as many as the gate runs.
pub(super) const SEEDS: u64 = 2_000;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Help,
    Seed(u64),
    Fixture(PathBuf),
    Seeds,
    Coverage,
    Mutants,
    Twice,
    Gate,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) mode: Mode,
    pub(super) seeds: u64,
    pub(super) from: u64,
    pub(super) jobs: Option<usize>,
    pub(super) minutes: Option<u64>,
    pub(super) mutant: Option<&'static str>,
    pub(super) trace: bool,
    pub(super) keep: bool,
    pub(super) bless: bool,
}

impl Arguments {
    /// Reads them; the planted bugs are those that may be named.
    ///
    /// # Errors
    /// In a sentence, what is wrong with them.
    pub(super) fn read(words: Vec<String>, planted: &[Planted]) -> Result<Arguments, String> {
        let mut modes = Vec::new();
        let mut seeds = None;
        let mut read = Arguments {
            mode: Mode::Help,
            seeds: SEEDS,
            from: 0,
            jobs: None,
            minutes: None,
            mutant: None,
            trace: false,
            keep: false,
            bless: false,
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
            match word.as_str() {
                "--help" | "-h" => modes.push(Mode::Help),
                "--seed" => modes.push(Mode::Seed(number(&word, &value()?)?)),
                "--fixture" => modes.push(Mode::Fixture(value()?.into())),
                "--coverage" => modes.push(Mode::Coverage),
                "--mutants" => modes.push(Mode::Mutants),
                "--gate" => modes.push(Mode::Gate),
                "--twice" => {
                    modes.push(Mode::Twice);
                    seeds = Some(number(&word, &value()?)?);
                }
                "--seeds" => seeds = Some(number(&word, &value()?)?),
                "--from" => read.from = number(&word, &value()?)?,
                "--jobs" => {
                    let jobs = number(&word, &value()?)?.clamp(1, 1_024);
                    read.jobs = usize::try_from(jobs).ok();
                }
                "--minutes" => read.minutes = Some(number(&word, &value()?)?.min(100_000)),
                "--mutant" => read.mutant = Some(named(&value()?, planted)?),
                "--trace" => read.trace = true,
                "--keep" => read.keep = true,
                "--bless" => read.bless = true,
                unknown => return Err(format!("unknown argument `{unknown}`")),
            }
        }
        read.seeds = seeds.unwrap_or(SEEDS);
        read.mode = match (modes.len(), seeds) {
            (0, Some(_)) => Mode::Seeds,
            (0, None) => Mode::Help,
            (1, _) => modes.remove(0),
            _ => return Err("one thing at a time".to_owned()),
        };
        Ok(read)
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name} wants a number, not `{value}`"))
}

fn named(name: &str, planted: &[Planted]) -> Result<&'static str, String> {
    let found = planted.iter().find(|planted| planted.name.eq_ignore_ascii_case(name));
    found.map(|planted| planted.name).ok_or_else(|| {
        if planted.is_empty() {
            return "no bugs are planted in this build; `cargo x sim` builds it with them"
                .to_owned();
        }
        let names: Vec<&str> = planted.iter().map(|planted| planted.name).collect();
        format!("there is no planted bug `{name}`; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Arguments, String> {
        let planted = [Planted { name: "RetryOvertakes", mistake: "" }];
        Arguments::read(words.split_whitespace().map(str::to_owned).collect(), &planted)
    }

    #[test]
    fn each_command_is_told_by_its_flag() {
        assert_eq!(read("").unwrap().mode, Mode::Help);
        assert_eq!(read("--seed 7 --trace").unwrap().mode, Mode::Seed(7));
        let many = read("--seeds 20 --from 5 --jobs 2 --minutes 3").unwrap();
        assert_eq!((many.mode, many.seeds, many.from), (Mode::Seeds, 20, 5));
        assert_eq!((many.jobs, many.minutes), (Some(2), Some(3)));
        let coverage = read("--coverage").unwrap();
        assert_eq!((coverage.mode, coverage.seeds), (Mode::Coverage, SEEDS));
        assert_eq!(read("--mutants --seeds 9").unwrap().mode, Mode::Mutants);
        let twice = read("--twice 50").unwrap();
        assert_eq!((twice.mode, twice.seeds), (Mode::Twice, 50));
        let one = read("--seed 1 --mutant retryovertakes").unwrap();
        assert_eq!(one.mutant, Some("RetryOvertakes"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        for (words, reason) in [
            ("--sead 1", "unknown argument `--sead`"),
            ("--seed", "--seed wants a value"),
            ("--seed one", "wants a number, not `one`"),
            ("--seed 1 --gate", "one thing at a time"),
            ("--seed 1 --mutant Nobody", "there is no planted bug `Nobody`; there are Retry"),
        ] {
            let said = read(words).unwrap_err();
            assert!(said.contains(reason), "{words}: {said}");
        }
    }
}
