//! The inputs that were kept, and those that once were findings, given to their targets again.

use std::fs;
use std::path::{Path, PathBuf};

use postrider_fuzzed::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.filter_map(Result::ok).map(name).collect();
    names.sort();
    names
}

/// F21: what the fuzzer has found out about each reader of outside input, and what it once broke there.
#[test]
fn kept_inputs_do_no_harm() {
    for (name, target) in TARGETS {
        let folder = fuzz().join("corpus").join(name);
        let inputs = names(&folder);
        assert!(!inputs.is_empty(), "{name} has no inputs");
        for input in inputs {
            let bytes = fs::read(folder.join(&input)).unwrap();
            println!("{name}/{input}");
            target(&bytes);
        }
    }
}

#[test]
fn nothing_at_all_is_an_input_too() {
    for (name, target) in TARGETS {
        println!("{name}");
        for input in [&b""[..], b"\0", b"\n", b"\xff", b"\0\0\0\0\0\0\0\0\0", &[b'{'; 4_096]] {
            target(input);
        }
    }
}

/// A target that nobody can start, or one whose inputs nobody runs, would look as if it were fuzzed.
#[test]
fn each_target_has_a_program_and_inputs() {
    let targets = TARGETS.map(|(name, _)| name.to_owned());
    assert_eq!(names(&fuzz().join("corpus")), targets);
    let mut programs = names(&fuzz().join("fuzz_targets"));
    programs.retain(|name| name != "planted.rs");
    assert_eq!(programs, targets.clone().map(|name| format!("{name}.rs")));
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in targets {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is no program");
    }
}
