//! Help texts: narrow, with examples, and the same as the golden files.

use crate::operate::golden;
use crate::{Shop, code, out};

/// The names of a command's subcommands, as its help lists them.
fn below(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Every command, with the words that lead to it.
fn commands(shop: &Shop) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(words) = open.pop() {
        let mut args: Vec<&str> = words.iter().map(|word| &**word).collect();
        args.push("--help");
        let help = shop.run(&args);
        assert_eq!(code(&help), 0, "{args:?}");
        let text = out(&help);
        open.extend(below(&text).into_iter().map(|name| [&words[..], &[name]].concat()));
        found.push((words, text));
    }
    found
}

/// Every line fits. A usage that clap makes may be longer where the command does not write its own.
fn narrow(words: &[String], text: &str) {
    let own = words.first().is_some_and(|first| OPERATORS.contains(&&**first));
    for line in text.lines().filter(|line| own || !line.starts_with("Usage:")) {
        assert!(line.chars().count() <= 80, "{words:?}: {line}");
    }
}

#[test]
fn every_help_fits_has_examples_and_is_known() {
    let shop = Shop::bare();
    let commands = commands(&shop);
    assert!(commands.len() > 30, "only {} commands were found", commands.len());
    for (words, text) in commands {
        let name = words.join(" ");
        assert!(!text.contains("demo-relay") && !text.contains("sabotage"), "{text}");
        if below(&text).is_empty()
            && words.first().is_some_and(|first| OPERATORS.contains(&&**first))
        {
            assert!(text.contains("\nExamples:\n  postrider"), "{name} has no examples:\n{text}");
        }
        let file = if words.is_empty() { "postrider".to_owned() } else { words.join("-") };
        golden(&format!("help/{file}.txt"), &text);
    }
}

/// The operators' commands: every leaf shows examples, and is compared with its golden file.
const OPERATORS: [&str; 16] = [
    "adopt",
    "audit",
    "chaos",
    "dead",
    "destinations",
    "doctor",
    "enqueue",
    "erase",
    "inbox",
    "migrate",
    "outbox",
    "partitions",
    "queue",
    "reconcile",
    "repair",
    "status",
];

#[test]
fn short_help_fits_as_well() {
    let shop = Shop::bare();
    for (words, _) in commands(&shop) {
        let mut args: Vec<&str> = words.iter().map(|word| &**word).collect();
        args.push("-h");
        let help = shop.run(&args);
        assert_eq!(code(&help), 0, "{args:?}");
        narrow(&words, &out(&help));
    }
}
