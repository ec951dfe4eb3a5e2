//! Steps: one named piece of a command, timed, with a verdict.
//!
//! A step that starts cargo starts the cargo that started us, without the variables that
//! `cargo run` adds for this package: build scripts of others would take them for a change.

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What a step came to: `Err` says in one line what failed.
pub(crate) type Verdict = Result<(), String>;

/// Runs a step and prints its name before and its duration after.
pub(crate) fn run(name: &str, work: impl FnOnce() -> Verdict) -> Verdict {
    println!("==> {name}");
    let began = Instant::now();
    let verdict = work();
    let duration = seconds(began.elapsed());
    match &verdict {
        Ok(()) => println!("    ok: {name} ({duration})"),
        Err(reason) => println!("    FAILED: {name} ({duration}): {reason}"),
    }
    verdict
}

/// `1.2 s`, with minutes where there are some.
pub(crate) fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs();
    if whole < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {} s", whole / 60, whole % 60)
    }
}

/// What nobody looks at on a machine of the integration service. Macros as the rest: they share libraries.
const LEAN: [(&str, &str); 3] = [
    ("CARGO_INCREMENTAL", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "none"),
    ("CARGO_PROFILE_DEV_BUILD_OVERRIDE_DEBUG", "none"),
];

/// A cargo command at the root.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name.as_ref());
        }
    }
    // A fresh machine of the integration service gains nothing from incremental state and from lines in backtraces,
    // and pays for writing them: more than half of a test program is that. A contributor's next run lives
    // from both.
    if std::env::var_os("CI").is_some() {
        for (name, value) in LEAN {
            if std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
    }
    command
}

/// What `cargo metadata` says of the packages of the workspace.
pub(crate) fn metadata(root: &Path) -> Result<String, String> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = cargo(root, &arguments)
        .output()
        .map_err(|error| format!("cargo metadata did not start: {error}"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata failed: {}", reason.trim()));
    }
    String::from_utf8(output.stdout)
        .map_err(|error| format!("cargo metadata cannot be read: {error}"))
}

/// Runs the command with our own output; `Err` where it did not end with 0.
pub(crate) fn complete(command: &mut Command) -> Verdict {
    let status = command
        .status()
        .map_err(|error| format!("{:?} did not start: {error}", command.get_program()))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shown(command))) }
}

/// The same, with the first lines of what it calls an error, which else stand far above the summary, or nowhere.
pub(crate) fn complete_or_say(command: &mut Command) -> Verdict {
    let said = command
        .stderr(Stdio::piped())
        .spawn()
        .and_then(Child::wait_with_output)
        .map_err(|error| format!("{:?} did not start: {error}", command.get_program()))?;
    let text = String::from_utf8_lossy(&said.stderr);
    eprint!("{text}");
    if said.status.success() {
        return Ok(());
    }
    Err(format!("`{}` ended with {}{}", shown(command), said.status, errors_of(&text)))
}

/// The first lines from the first error on, or the last ones where nothing is called so.
fn errors_of(text: &str) -> String {
    const LINES_MAX: usize = 8;
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len().saturating_sub(LINES_MAX);
    let first = lines.iter().position(|line| line.starts_with("error")).unwrap_or(last);
    lines[first..].iter().take(LINES_MAX).map(|line| format!("\n    {line}")).collect()
}

/// Runs the command with our own output, and ends as it does. One that a signal ended has no code of its own.
pub(crate) fn pass_through(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("error: `{}` did not start: {error}", shown(command));
            ExitCode::FAILURE
        }
    }
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words =
        vec![program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_says_which_one_it_was() {
        let reason = complete(&mut Command::new("false")).expect_err("false fails");
        assert!(reason.starts_with("`false` ended with"), "{reason}");
        complete(&mut Command::new("true")).expect("true succeeds");
    }

    #[test]
    fn a_failing_command_says_why() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo warning: w >&2; echo error: no room >&2; echo ' --> here' >&2; false",
        ]);
        let reason = complete_or_say(&mut command).expect_err("it fails");
        assert!(reason.ends_with("\n    error: no room\n     --> here"), "{reason}");
        let many: String = (0..20).map(|n| format!("line {n}\n")).collect();
        assert!(errors_of(&many).starts_with("\n    line 12\n"), "{}", errors_of(&many));
    }

    #[test]
    fn a_command_that_is_missing_is_a_failure() {
        let reason = complete(&mut Command::new("no-such-program-here")).expect_err("missing");
        assert!(reason.contains("did not start"), "{reason}");
    }

    #[test]
    fn durations_are_short_to_read() {
        assert_eq!(seconds(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 5 s");
    }
}
