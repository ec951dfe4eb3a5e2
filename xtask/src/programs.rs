//! The test programs of the workspace, run two at a time, with one more beside them that does little but wait.
//!
//! Most of them wait for servers, for leases, and for processes, while one of them alone leaves the
//! machine idle. Each one's output is read as it comes and shown in one piece when it has ended, so that
//! two never mix.

mod lanes;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;

use self::lanes::{LANES, sorted, take};
use crate::step::{self, Verdict};
use crate::summary::Summary;

/// A program that runs once more, against the current version of a server instead of the system's.
struct Again {
    program: &'static str,
    /// The tests that it runs then, by parts of their names; all where there is none.
    only: &'static [&'static str],
    /// What it leaves out: what runs on both versions by itself, layouts of one thing of which the other stands for all, and
    /// what concerns our code alone.
    without: &'static [&'static str],
    /// What the tests take for the server, and where the current one stands.
    variables: &'static [(&'static str, &'static str)],
}

const POSTGRES: &[(&str, &str)] =
    &[("POSTRIDER_PG_URL", "POSTRIDER_PG18_URL"), ("POSTRIDER_PG_BIN", "POSTRIDER_PG18_BIN")];

const AGAIN: [Again; 8] = [
    Again {
        program: "postrider-postgres main",
        only: &[],
        without: &[
            "contract::few",
            "contract::current",
            "contract::model",
            "own::contract::status",
            "own::contract::debezium",
            "inbox::suite",
            "inbox::pooled",
            "inbox::model",
            "pooled::",
            // What has to do with our code, and with nothing that versions of the server do in different ways.
            "change::recount",
            "inbox::receiver::",
            "operator::events",
            "own::mapping",
            "page::the_examples",
            "vouched::",
        ],
        variables: POSTGRES,
    },
    Again {
        program: "postrider-e2e-postgres main",
        only: &[],
        without: &["of_an_own_table", "own_table::an_idle", "producers::", "backlog::one_key"],
        variables: POSTGRES,
    },
    // Without dump and restore: the package of the current version has no `pg_dump`.
    Again {
        program: "postrider-postgres snapshot",
        only: &[],
        without: &["restore::"],
        variables: POSTGRES,
    },
    Again { program: "postrider-postgres-sqlx main", only: &[], without: &[], variables: POSTGRES },
    Again {
        program: "postrider-postgres-sea-orm main",
        only: &[],
        without: &[],
        variables: POSTGRES,
    },
    Again {
        program: "postrider-postgres-diesel main",
        only: &[],
        without: &[],
        variables: POSTGRES,
    },
    Again {
        program: "postrider-cli cli",
        only: &["postgres::"],
        without: &[],
        variables: POSTGRES,
    },
    Again {
        program: "postrider-nats main",
        only: &["suite::", "publishing::", "promised::", "stalling::", "trouble::", "examining::"],
        without: &[],
        variables: &[("POSTRIDER_NATS_BIN", "POSTRIDER_NATS_CURRENT_BIN")],
    },
];

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    package: String,
    target: String,
    version: String,
    executable: PathBuf,
    /// The folder of its package: cargo runs tests there.
    folder: PathBuf,
    /// Tests that it runs, and those of them that it leaves out, by parts of their names.
    only: &'static [&'static str],
    without: &'static [&'static str],
    /// More variables than the others have.
    variables: Vec<(String, String)>,
}

impl Program {
    /// The program of a line of cargo's, where it is one.
    fn of(line: &str) -> Option<Program> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test =
            message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let manifest = Path::new(message["manifest_path"].as_str()?);
        // `path+file:///folder#name@version`, or `…/name#version` where folder and package are called alike.
        let id = message["package_id"].as_str()?;
        let (place, rest) = id.split_once('#')?;
        let (package, version) = match rest.split_once('@') {
            Some(pair) => pair,
            None => (place.rsplit('/').next()?, rest),
        };
        is_test.then_some(Program {
            package: package.to_owned(),
            target: message["target"]["name"].as_str()?.to_owned(),
            version: version.to_owned(),
            executable: PathBuf::from(message["executable"].as_str()?),
            folder: manifest.parent()?.to_path_buf(),
            only: &[],
            without: &[],
            variables: Vec::new(),
        })
    }

    /// The same once more on the current version, if it is one that does.
    ///
    /// # Errors
    /// What is missing for that.
    fn again(&self, value: &dyn Fn(&str) -> Option<String>) -> Result<Option<Program>, String> {
        let Some(again) = AGAIN.iter().find(|again| again.program == self.name()) else {
            return Ok(None);
        };
        let moved = again.variables.iter().map(|(name, current)| {
            let value = value(current).ok_or_else(|| {
                format!("skipped: {} on the current version: {current} is not set", self.name())
            })?;
            Ok(((*name).to_owned(), value))
        });
        let variables = moved.collect::<Result<_, String>>()?;
        let (only, without) = (again.only, again.without);
        Ok(Some(Program { only, without, variables, ..self.clone() }))
    }

    fn name(&self) -> String {
        let again = if self.variables.is_empty() { "" } else { ", on the current version" };
        format!("{} {}{again}", self.package, self.target)
    }

    /// What `cargo test` would start.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .arg("--show-output")
            .args(self.only)
            .args(self.without.iter().flat_map(|name| ["--skip", name]))
            .current_dir(&self.folder)
            .env("CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env("CARGO_PKG_VERSION", &self.version);
        // A derive macro's own tests are linked to the compiler's library.
        if let Some(library) = library() {
            command.env("LD_LIBRARY_PATH", library);
        }
        command
    }
}

/// Where the compiler keeps its own libraries.
fn library() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "target-libdir"]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(folder.trim()))
}

/// Builds the test programs by this command of cargo's, and runs them with these variables.
pub(crate) fn run(
    build: &mut Command,
    variables: &[(String, String)],
    summary: &mut Summary,
) -> Verdict {
    let mut programs = built(build)?;
    let value = |name: &str| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).or_else(|| std::env::var(name).ok())
    };
    for number in 0..programs.len() {
        match programs[number].again(&value) {
            Ok(again) => programs.extend(again),
            Err(reason) => summary.skipped.extend([reason]),
        }
    }
    run_all(sorted(programs), variables, summary)
}

/// The programs that a command of cargo's builds.
fn built(build: &mut Command) -> Result<Vec<Program>, String> {
    let mut child = build
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("`{}` did not start: {error}", step::shown(build)))?;
    let output = child.stdout.take().expect("invariant: the output is piped");
    let lines: Result<Vec<String>, _> = BufReader::new(output).lines().collect();
    let lines = lines.map_err(|error| format!("the output broke off: {error}"))?;
    let status = child.wait().map_err(|error| format!("the end was lost: {error}"))?;
    if !status.success() {
        return Err(format!("`{}` ended with {status}", step::shown(build)));
    }
    let programs: Vec<Program> = lines.iter().filter_map(|line| Program::of(line)).collect();
    if programs.is_empty() { Err("cargo named no test program".to_owned()) } else { Ok(programs) }
}

fn run_all(
    programs: VecDeque<Program>,
    variables: &[(String, String)],
    summary: &mut Summary,
) -> Verdict {
    let queue = Mutex::new(programs);
    let results = Mutex::new((summary, Vec::new()));
    let next = |waits| take(&mut queue.lock().unwrap_or_else(PoisonError::into_inner), waits);
    std::thread::scope(|scope| {
        for lane in 0..=LANES {
            let (next, results) = (&next, &results);
            scope.spawn(move || {
                while let Some(program) = next(lane == LANES) {
                    let began = Instant::now();
                    // Of one that never ends this is all that is seen.
                    println!("    {} …", program.name());
                    let mut command = program.command();
                    let variables = variables.iter().chain(&program.variables);
                    command.envs(variables.map(|(name, value)| (name, value)));
                    let (lines, verdict) = run_one(&mut command);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    let (summary, failed) = &mut *results;
                    println!("    {} ({})", program.name(), step::seconds(began.elapsed()));
                    for line in lines.iter().filter(|line| summary.take(line)) {
                        println!("{line}");
                    }
                    failed.extend(verdict.err().map(|reason| (program.name(), reason)));
                }
            });
        }
    });
    let (_, failed) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed: Vec<String> =
        failed.into_iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// What a program printed, and how it ended.
fn run_one(command: &mut Command) -> (Vec<String>, Verdict) {
    let output = match command.stderr(Stdio::inherit()).output() {
        Ok(output) => output,
        Err(error) => {
            return (Vec::new(), Err(format!("`{}` did not start: {error}", step::shown(command))));
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(str::to_owned).collect();
    let status = output.status;
    let verdict = if status.success() { Ok(()) } else { Err(format!("ended with {status}")) };
    (lines, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const LINE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/stores/postgres#postrider-postgres@0.1.0","manifest_path":"/w/stores/postgres/Cargo.toml","target":{"kind":["test"],"name":"main"},"profile":{"test":true},"executable":"/w/target/debug/deps/main-1"}"#;

    fn script(name: &str, folder: &Path, text: &str) -> Program {
        use std::os::unix::fs::PermissionsExt as _;
        let executable = folder.join(name);
        std::fs::write(&executable, format!("#!/bin/sh\n{text}\n")).expect("a file");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&executable, mode).expect("its mode");
        let (package, target) = (name.to_owned(), "main".to_owned());
        let version = "0.1.0".to_owned();
        let (folder, variables) = (folder.to_path_buf(), Vec::new());
        let (only, without) = (&[][..], &[][..]);
        Program { package, target, version, executable, folder, only, without, variables }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_program_is_read_from_what_cargo_says() {
        let program = Program::of(LINE).expect("a test program");
        assert_eq!(program.name(), "postrider-postgres main");
        assert_eq!(program.folder, Path::new("/w/stores/postgres"));
        let alike = LINE.replace("#postrider-postgres@0.1.0", "#0.1.0");
        assert_eq!(Program::of(&alike).expect("a program").package, "postgres");
        let library = LINE.replace(r#""test":true"#, r#""test":false"#);
        assert_eq!(Program::of(&library), None);
        assert_eq!(Program::of("Compiling postrider-core"), None);
    }

    #[test]
    fn what_rests_on_a_version_runs_on_the_current_one_too() {
        let program = Program::of(LINE).expect("a test program");
        let here = |_: &str| Some("it".to_owned());
        let again = program.again(&here).expect("all is known").expect("it runs again");
        assert_eq!(again.name(), "postrider-postgres main, on the current version");
        let wanted = POSTGRES.iter().map(|(name, _)| ((*name).to_owned(), "it".to_owned()));
        assert_eq!(again.variables, wanted.collect::<Vec<_>>());
        let skips = format!("{:?}", again.command());
        assert!(skips.contains(r#""--skip" "pooled::""#), "{skips}");
        let other = LINE.replace("postrider-postgres", "postrider-dynamodb");
        assert_eq!(Program::of(&other).expect("a program").again(&here), Ok(None));
        // What cannot run is said.
        let one = |name: &str| (name == POSTGRES[0].1).then(|| "it".to_owned());
        let reason = program.again(&one).expect_err("a variable is missing");
        assert!(reason.starts_with("skipped: ") && reason.contains(POSTGRES[1].1), "{reason}");
        let nats = Program::of(&LINE.replace("postrider-postgres", "postrider-nats"));
        let again = nats.expect("a program").again(&here).expect("all is known");
        let command = format!("{:?}", again.expect("it runs again").command());
        assert!(command.contains(r#""suite::" "publishing::""#), "{command}");
    }

    #[test]
    fn all_are_run_and_counted_and_a_failure_names_its_program() {
        let folder = folder("programs");
        let good = "echo 'test result: ok. 2 passed; 0 failed'; echo \"skipped: $WHY\"";
        let bad = "echo 'test result: FAILED. 1 passed; 1 failed'; exit 101";
        let killed = "kill -9 $$";
        let programs = [("good", good), ("bad", bad), ("killed", killed)];
        let programs = programs.map(|(name, text)| script(name, &folder, text));
        let mut summary = Summary::default();
        let variables = [("WHY".to_owned(), "no server".to_owned())];
        let verdict = run_all(programs.to_vec().into(), &variables, &mut summary);
        std::fs::remove_dir_all(&folder).expect("it was ours");
        let reason = verdict.expect_err("two of them failed");
        assert!(reason.contains("bad main: ended with exit status: 101"), "{reason}");
        assert!(reason.contains("killed main: ended with signal: 9"), "{reason}");
        assert_eq!(summary.closing(), "3 passed, 1 failed");
        assert_eq!(summary.skipped, ["skipped: no server"]);
    }

    #[test]
    fn the_compilers_own_library_is_found() {
        let folder = library().expect("a compiler is here");
        let mut files = std::fs::read_dir(folder).expect("its libraries are there").flatten();
        assert!(files.any(|file| file.file_name().to_string_lossy().starts_with("libstd-")));
    }

    #[test]
    fn a_build_that_fails_is_a_failure() {
        built(&mut Command::new("false")).expect_err("nothing was built");
        built(&mut Command::new("true")).expect_err("no program was named");
    }
}
