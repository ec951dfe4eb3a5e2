//! The infrastructure recipes of `deploy/aws`, validated where Terraform and its provider can be had.
//!
//! In a copy: what Terraform leaves beside its files is nobody's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::provision;
use crate::step::{self, Verdict};
use crate::summary::Summary;

/// Where a folder of providers is, for machines that do not reach the registry.
const PLUGINS: &str = "POSTRIDER_TERRAFORM_PLUGINS";

/// A folder that is removed again.
struct Copy(PathBuf);

impl Copy {
    fn of(folder: &Path) -> std::io::Result<Copy> {
        let name = format!("postrider-recipes-{}", std::process::id());
        let copy = Copy(std::env::temp_dir().join(name));
        fs::create_dir_all(&copy.0)?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|ending| ending == "tf") {
                fs::copy(entry.path(), copy.0.join(entry.file_name()))?;
            }
        }
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // What stays is a few files in the folder for temporary ones.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Validates them, or notes why not.
pub(crate) fn validate(root: &Path, summary: &mut Summary) -> Verdict {
    if !provision::starts("terraform", "-version") {
        let line = "skipped: terraform: not installed, so deploy/aws was not validated";
        summary.skipped.push(line.to_owned());
        return Ok(());
    }
    let folder = root.join("deploy/aws");
    step::complete(terraform(&folder).args(["fmt", "-check", "-no-color"]))?;
    let copy = Copy::of(&folder).map_err(|error| format!("deploy/aws: {error}"))?;
    let mut init = terraform(&copy.0);
    init.args(["init", "-backend=false", "-input=false", "-no-color"]);
    if let Some(plugins) = std::env::var_os(PLUGINS) {
        let mut argument = std::ffi::OsString::from("-plugin-dir=");
        argument.push(plugins);
        init.arg(argument);
    }
    let had = init.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !had.is_ok_and(|status| status.success()) {
        let line = format!(
            "skipped: terraform: its provider for AWS cannot be had here (a folder of providers may be named by \
             {PLUGINS}), so deploy/aws was not validated"
        );
        summary.skipped.push(line);
        return Ok(());
    }
    step::complete(terraform(&copy.0).args(["validate", "-no-color"]).stdout(Stdio::null()))
}

fn terraform(folder: &Path) -> Command {
    let mut command = Command::new("terraform");
    command.current_dir(folder);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root whose recipe is this. It needs no provider.
    fn root(name: &str, recipe: &str) -> Copy {
        let root = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("deploy/aws")).expect("a folder");
        fs::write(root.join("deploy/aws/main.tf"), recipe).expect("a file");
        Copy(root)
    }

    /// R055: there is a recipe with a pipe of EventBridge, which runs nothing of ours, and one with workers: functions that
    /// publish and handle. What they are made of is looked for here; `validate` reads them whole.
    #[test]
    fn there_are_recipes_with_a_pipe_and_with_workers() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/aws");
        let of = |file: &str| fs::read_to_string(folder.join(file)).expect("a recipe");
        let pipe = of("pipe.tf");
        for part in ["aws_pipes_pipe", "dead_letter_config", "aws_dynamodb_table.outbox.stream_arn"]
        {
            assert!(pipe.contains(part), "{part}");
        }
        let workers = of("functions.tf");
        for part in ["aws_lambda_function", "aws_lambda_event_source_mapping"] {
            assert!(workers.contains(part), "{part}");
        }
        let page = of("README.md").to_lowercase();
        assert!(page.contains("pipe") && page.contains("function"), "which to take is said");
    }

    #[test]
    fn a_recipe_that_names_nothing_that_is_there_is_refused() {
        let mut summary = Summary::default();
        let broken = root("broken", "output \"queue\" {\n  value = var.nowhere\n}\n");
        let verdict = validate(&broken.0, &mut summary);
        if !summary.skipped.is_empty() {
            println!("{}", summary.skipped[0]);
            return;
        }
        verdict.expect_err("there is no such variable");
        let sound = root("sound", "output \"queue\" {\n  value = \"events\"\n}\n");
        validate(&sound.0, &mut summary).expect("it is sound");
        assert!(summary.skipped.is_empty());
    }
}
