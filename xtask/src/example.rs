//! `cargo x example`: an example that needs servers, with the servers it needs.

use std::path::Path;
use std::process::ExitCode;

use crate::{services, step};

/// An example, what cargo does with its package, and what has to be up.
struct Example {
    name: &'static str,
    about: &'static str,
    /// Functions that something else invokes are run by their tests.
    verb: &'static str,
    package: &'static str,
    services: &'static [&'static str],
}

const EXAMPLES: [Example; 2] = [
    Example {
        name: "aws-lambda",
        about: "three functions of Lambda, invoked with recorded events, all on this machine",
        verb: "test",
        package: "example-aws-lambda",
        services: &["ddb", "aws"],
    },
    Example {
        name: "aws-orders",
        about: "orders and events in DynamoDB, EventBridge, SQS, and a payment worker, all on this machine",
        verb: "run",
        package: "example-aws-orders",
        services: &["ddb", "aws"],
    },
];

/// Runs one, its arguments and exit code passed through; without a name, lists them.
pub(crate) fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let Some((name, rest)) = arguments.split_first() else {
        for example in &EXAMPLES {
            println!("{:<12} {}", example.name, example.about);
        }
        return ExitCode::SUCCESS;
    };
    let Some(example) = EXAMPLES.iter().find(|example| example.name == name) else {
        eprintln!("error: there is no example `{name}` here; `cargo x example` lists them");
        return ExitCode::from(2);
    };
    let (variables, missing) = services::provide(example.services);
    if let [first, ..] = &missing[..] {
        eprintln!("error: {}", first.replacen("skipped: tests with", "not run: it needs", 1));
        return ExitCode::FAILURE;
    }
    let mut command =
        step::cargo(root, &[example.verb, "--quiet", "--package", example.package, "--"]);
    command.args(rest).envs(variables);
    step::pass_through(&mut command)
}
