//! `cargo x fuzz`: builds the fuzzer's programs so that it sees the code which an input reaches, and runs them.
//!
//! That is done by the compiler that builds everything else here: its pass for coverage, and libFuzzer, which takes a C++
//! compiler. There is no sanitizer of addresses, which only another compiler offers: nothing of ours is unsafe. A build
//! with these flags is another build of everything, so it has a target folder of its own.
//!
//! Invariant: no run counts before the fuzzer has found a panic that was planted behind four bytes. Without coverage it would
//! find nothing, here or anywhere, and say that all is well.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::{sim, step, suggestion};

/// What `cargo fuzz build --sanitizer none` says to the compiler, so far as it is stable.
const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];
/// Seconds for one input, megabytes of memory, and bytes of an input: more is a finding, or is not tried.
const BOUNDS: [&str; 3] = ["-timeout=5", "-rss_limit_mb=1024", "-max_len=16384"];
/// The control.
const PLANTED: &str = "planted";
/// What it says when it is found.
const FOUND: &str = "the planted panic was found";
/// It takes a second or two.
const CONTROL: Duration = Duration::from_secs(60);
const SPAN: Duration = Duration::from_secs(60);
const USAGE: &str = "usage: cargo x fuzz [TARGET…] [--for 10m], or TARGET --input FILE";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    targets: Vec<String>,
    /// For each target.
    span: Duration,
    /// A single input instead.
    input: Option<PathBuf>,
}

/// Runs the targets that are named, or all of them.
pub(crate) fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let known = targets(root);
    let wish = match read(arguments, &known) {
        Ok(wish) => wish,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}\ntargets: {}", known.join(", "));
            return ExitCode::from(2);
        }
    };
    let programs = match build(root) {
        Ok(programs) => programs,
        Err(why) => {
            eprintln!("error: {why}\nlibFuzzer is C++: it takes `g++` or `clang++`");
            return ExitCode::FAILURE;
        }
    };
    if let Some(input) = wish.input {
        let mut command = Command::new(programs.join(&wish.targets[0]));
        return step::pass_through(command.args(BOUNDS).arg(input));
    }
    let place = target(root);
    let mut verdict = step::run("control", || control(&programs, &place));
    if verdict.is_ok() {
        for name in &wish.targets {
            verdict = step::run(name, || fuzz(root, &programs, name, wish.span)).and(verdict);
        }
    }
    if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The targets by name: those of which there is a program.
fn targets(root: &Path) -> Vec<String> {
    let programs = fs::read_dir(root.join("fuzz/fuzz_targets")).into_iter().flatten();
    let stem = |entry: fs::DirEntry| entry.path().file_stem().map(OsStr::to_os_string);
    let names = programs.filter_map(Result::ok).filter_map(stem);
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name != PLANTED);
    names.sort();
    names
}

fn read(arguments: &[String], known: &[String]) -> Result<Wish, String> {
    let mut wish = Wish { targets: Vec::new(), span: SPAN, input: None };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--for" => wish.span = span(value()?)?,
            "--input" => wish.input = Some(value()?.into()),
            name if known.iter().any(|known| known == name) => wish.targets.push(name.to_owned()),
            other => {
                let names: Vec<&str> = known.iter().map(String::as_str).collect();
                let near = suggestion::nearest(other, &names);
                let hint = near.map(|near| format!("; did you mean `{near}`?"));
                return Err(format!("there is no target `{other}`{}", hint.unwrap_or_default()));
            }
        }
    }
    match (&wish.input, wish.targets.len()) {
        (Some(_), 1) => {}
        (Some(_), _) => return Err("an input is one target's".to_owned()),
        (None, 0) => wish.targets = known.to_vec(),
        (None, _) => {}
    }
    Ok(wish)
}

/// A span like `90s`, `10m`, or `24h`. A run without an end is none.
fn span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no span: write 90s, 10m, or 24h");
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        _ => return Err(wrong()),
    };
    let number = text[..text.len() - 1].parse::<u64>().ok();
    let seconds = number.and_then(|number| number.checked_mul(unit));
    seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(wrong)
}

/// Where the build with coverage stands, and what its runs leave behind.
fn target(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root.join("target")).join("fuzz")
}

/// Builds all programs; their folder.
fn build(root: &Path) -> Result<PathBuf, String> {
    let host = host()?;
    let mut command = step::cargo(root, &["build", "--quiet", "--release", "--bins"]);
    let (name, value) = sim::flags(
        &FLAGS,
        std::env::var_os("CARGO_ENCODED_RUSTFLAGS"),
        std::env::var_os("RUSTFLAGS"),
    );
    // With a target of their own the flags are not those of build scripts and macros, which are not linked with libFuzzer.
    command.env(name, value).args(["--manifest-path", "fuzz/Cargo.toml", "--target", &host]);
    step::complete(command.arg("--target-dir").arg(target(root)))?;
    Ok(target(root).join(host).join("release"))
}

fn host() -> Result<String, String> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(compiler).arg("-vV").output();
    let said = said.map_err(|error| format!("rustc did not start: {error}"))?;
    let said = String::from_utf8_lossy(&said.stdout);
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say its host".to_owned())
}

/// The panic that was planted must be found.
fn control(programs: &Path, place: &Path) -> step::Verdict {
    let mut command = Command::new(programs.join(PLANTED));
    let (said, _) = start(&mut command, place, PLANTED, CONTROL)?;
    if said.contains(FOUND) {
        return Ok(());
    }
    Err(format!(
        "the fuzzer is blind: in {} it did not find the panic that was planted for it, so it would find no other",
        step::seconds(CONTROL)
    ))
}

fn fuzz(root: &Path, programs: &Path, name: &str, span: Duration) -> step::Verdict {
    let place = target(root);
    let grown = place.join("corpus").join(name);
    fs::create_dir_all(&grown).map_err(|error| format!("{}: {error}", grown.display()))?;
    let mut command = Command::new(programs.join(name));
    // What is new goes to the first folder; those that are kept are read alone.
    command.arg(grown).arg(root.join("fuzz/corpus").join(name));
    let (said, is_well) = start(&mut command, &place, name, span)?;
    println!("    {}", told(&said));
    if is_well { Ok(()) } else { Err(finding(name, &said)) }
}

/// Runs a program for a while; what it said, which is kept in a file as well, and whether it ended well.
fn start(
    command: &mut Command,
    place: &Path,
    name: &str,
    span: Duration,
) -> Result<(String, bool), String> {
    let findings = place.join("findings").join(name);
    fs::create_dir_all(&findings).map_err(|error| format!("{}: {error}", findings.display()))?;
    let log = place.join(format!("{name}.log"));
    let file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let status = command
        .args(BOUNDS)
        .args([format!("-max_total_time={}", span.as_secs()), "-print_final_stats=1".to_owned()])
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .stdout(file.try_clone().map_err(|error| error.to_string())?)
        .stderr(file)
        .status()
        .map_err(|error| format!("{name} did not start: {error}"))?;
    let said = fs::read(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok((String::from_utf8_lossy(&said).into_owned(), status.success()))
}

/// How many inputs were tried, and how much of the code they reached.
fn told(said: &str) -> String {
    let number = |line: &str, before: &str| {
        let rest = line.split_once(before)?.1.trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let tried = said.lines().find_map(|line| number(line, "number_of_executed_units:"));
    let reached = || said.lines().filter_map(|line| number(line, " cov: "));
    match (tried, reached().next(), reached().next_back()) {
        (Some(tried), Some(first), Some(last)) => {
            format!("{tried} inputs; {first} edges reached by those that were kept, now {last}")
        }
        _ => "it ended before it had tried anything".to_owned(),
    }
}

/// What was found, where the input is, and how to see it again.
fn finding(name: &str, said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let panic = lines.iter().position(|line| line.contains(" panicked at "));
    let words = match panic {
        Some(at) => {
            lines[at..].iter().take(5).take_while(|line| !line.starts_with("note: ")).collect()
        }
        None => lines.iter().filter(|line| line.contains("ERROR: ")).take(1).collect::<Vec<_>>(),
    };
    let words: String = words.iter().map(|line| format!("\n    {line}")).collect();
    let place = said.lines().find_map(|line| line.split_once("Test unit written to "));
    match place {
        Some((_, path)) => {
            format!("a finding{words}\n    again: cargo x fuzz {name} --input {path}")
        }
        None => format!("it did not end well, and wrote no input{words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(arguments: &[&str]) -> Result<Wish, String> {
        let known = ["config", "plain"].map(str::to_owned);
        read(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), &known)
    }

    #[test]
    fn all_targets_are_meant_where_none_is_named() {
        let all = wish(&["--for", "10m"]).expect("a wish");
        assert_eq!((all.targets.len(), all.span), (2, Duration::from_secs(600)));
        let one = wish(&["plain"]).expect("a wish");
        assert_eq!((one.targets, one.span), (vec!["plain".to_owned()], SPAN));
        assert!(wish(&["plane"]).expect_err("no target").contains("`plain`"));
        assert!(wish(&["--for"]).expect_err("no span").contains("needs a value"));
        assert!(wish(&["--input", "f"]).expect_err("whose?").contains("one target"));
        let again = wish(&["config", "--input", "f"]).expect("a wish");
        assert_eq!(again.input, Some(PathBuf::from("f")));
    }

    #[test]
    fn a_span_has_a_unit_and_an_end() {
        assert_eq!(span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("24h"), Ok(Duration::from_secs(86_400)));
        for wrong in ["", "10", "0s", "m", "1d", "-1s", "99999999999999999999h", "5ü"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_control_is_no_target() {
        let targets = targets(&crate::tree::root());
        assert!(targets.contains(&"config".to_owned()), "{targets:?}");
        assert!(!targets.contains(&PLANTED.to_owned()));
    }

    #[test]
    fn a_run_is_told_in_numbers() {
        let said = "#45\tINITED cov: 929 ft: 1295 corp: 4\n#9 NEW    cov: 1000 ft: 2\n\
                    #90\tDONE   cov: 2110 ft: 5384 corp: 12\nstat::number_of_executed_units: 1760863\n";
        assert_eq!(
            told(said),
            "1760863 inputs; 929 edges reached by those that were kept, now 2110"
        );
        assert!(told("").contains("before"));
    }

    #[test]
    fn a_finding_says_how_to_see_it_again() {
        let said = "thread '<unnamed>' (7) panicked at a.rs:1:2:\nno\nnote: run with it\n\
                    artifact_prefix='t/'; Test unit written to t/crash-1\n";
        let told = finding("plain", said);
        assert!(told.contains("panicked at a.rs:1:2:\n    no\n"), "{told}");
        assert!(told.ends_with("cargo x fuzz plain --input t/crash-1"), "{told}");
        let slow =
            "==1== ERROR: libFuzzer: timeout after 5 seconds\nTest unit written to t/timeout-1";
        assert!(finding("plain", slow).contains("timeout after 5 seconds"));
    }
}
