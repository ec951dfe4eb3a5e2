//! The compiler, with the libraries of a test, and its judgement of a folder of cases.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::said;

/// What [`Compiler::by_variable`] looks for.
const BLESS: &str = "POSTRIDER_BLESS";

/// A compiler that knows the libraries of the test that made it.
#[derive(Debug)]
pub struct Compiler {
    libraries: Vec<String>,
    /// Where the compiler is started: names of files are told from there.
    root: PathBuf,
    /// What it makes, until it is dropped.
    made: TempDir,
    /// What the compiler says is written down instead of compared.
    bless: bool,
}

impl Compiler {
    /// One that is given `libraries` (as `postrider_called::libraries!()` tells them), and runs in `root`.
    ///
    /// # Errors
    /// A temporary folder cannot be made, or `root` is not there.
    pub fn new(libraries: &[&str], root: &Path) -> Result<Self, String> {
        let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
        let made = TempDir::new().map_err(|error| format!("no temporary folder: {error}"))?;
        let libraries = libraries.iter().map(|&word| word.to_owned()).collect();
        Ok(Self { libraries, root, made, bless: false })
    }

    /// The same, which writes down what is said where the variable `POSTRIDER_BLESS` is set.
    #[must_use]
    pub fn by_variable(self) -> Self {
        Self { bless: std::env::var_os(BLESS).is_some(), ..self }
    }

    /// Asks that every case in `folder` is refused, with the words of its `.txt`.
    ///
    /// # Errors
    /// What is not so, case by case; and a folder that has no case.
    pub fn refuses(&self, folder: &str) -> Result<(), String> {
        self.each(folder, |case| self.refuses_case(case))
    }

    /// Asks that every case in `folder` compiles and ends well when it is run.
    ///
    /// # Errors
    /// What is not so, case by case; and a folder that has no case.
    pub fn accepts(&self, folder: &str) -> Result<(), String> {
        self.each(folder, |case| self.accepts_case(case))
    }

    fn each(&self, folder: &str, judge: impl Fn(&str) -> Result<(), String>) -> Result<(), String> {
        let cases = self.cases(folder)?;
        let faults: Vec<String> = cases
            .iter()
            .filter_map(|case| judge(case).err().map(|fault| format!("{case}: {fault}")))
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n\n")) }
    }

    /// The cases of a folder by their paths from the root.
    fn cases(&self, folder: &str) -> Result<Vec<String>, String> {
        let failed = |error| format!("{folder}: {error}");
        let mut cases = Vec::new();
        for entry in fs::read_dir(self.root.join(folder)).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if Path::new(&name).extension() == Some(OsStr::new("rs")) {
                cases.push(format!("{folder}/{}", name.to_string_lossy()));
            }
        }
        cases.sort();
        if cases.is_empty() { Err(format!("{folder}: it has no case")) } else { Ok(cases) }
    }

    fn refuses_case(&self, case: &str) -> Result<(), String> {
        let output = self.compile(case, "metadata")?;
        if output.status.success() {
            return Err("it compiles, and must not".to_owned());
        }
        let said = said::text(&String::from_utf8_lossy(&output.stderr), case)?;
        let expected = self.root.join(case).with_extension("txt");
        if self.bless {
            return fs::write(&expected, said)
                .map_err(|error| format!("{}: {error}", expected.display()));
        }
        let before = fs::read_to_string(&expected)
            .map_err(|error| format!("{}: {error}; it says:\n{said}", expected.display()))?;
        if before == said {
            return Ok(());
        }
        Err(format!(
            "refused with other words; with {BLESS}=1 they are written down.\n\
             expected:\n{before}\nsaid:\n{said}"
        ))
    }

    fn accepts_case(&self, case: &str) -> Result<(), String> {
        let output = self.compile(case, "link")?;
        let said = said::text(&String::from_utf8_lossy(&output.stderr), case)?;
        if !output.status.success() {
            return Err(format!("it does not compile:\n{said}"));
        }
        let program = self.program(case);
        let output = Command::new(&program)
            .output()
            .map_err(|error| format!("{} did not start: {error}", program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr);
        Err(format!("it ended with {}: {}", output.status, reason.trim()))
    }

    /// Compiles a case up to `kind`: `metadata` is all that errors take, `link` a program.
    fn compile(&self, case: &str, kind: &str) -> Result<Output, String> {
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        Command::new(compiler)
            .current_dir(&self.root)
            .args(&self.libraries)
            .args(["--crate-name", "case", "--crate-type", "bin", "--error-format", "json"])
            // Most of a case is a function that nobody calls.
            .args(["--allow", "dead_code", "--emit", kind, "-o"])
            .arg(self.program(case))
            .arg(case)
            .output()
            .map_err(|error| format!("the compiler did not start: {error}"))
    }

    fn program(&self, case: &str) -> PathBuf {
        self.made.path().join(case.replace('/', "-")).with_extension("made")
    }
}
