//! Help texts.

use crate::{Shop, code, out};

#[test]
fn help_fits_in_80_columns_and_shows_no_hidden_command() {
    let shop = Shop::bare();
    for command in [&["--help"][..], &["init", "--help"], &["relay", "--help"], &["demo", "--help"]]
    {
        for flag in ["--help", "-h"] {
            let mut args = command.to_vec();
            *args.last_mut().unwrap() = flag;
            let help = shop.run(&args);
            assert_eq!(code(&help), 0);
            let text = out(&help);
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{args:?}: {line}");
            }
            assert!(text.lines().count() > 5, "{args:?}: {text}");
            assert!(!text.contains("demo-relay") && !text.contains("sabotage"), "{text}");
        }
    }
}
