//! Where servers come from: the system's packages, and what language registries carry. Their
//! ordinary clients fetch them, as each machine has them set up; no address stands here.

use std::fs::File;

use super::place::Place;
use crate::provision;

/// Installs packages of the system. One run at a time: the package database has one writer.
pub(crate) fn system(place: &Place, packages: &[&str]) -> Result<(), String> {
    let path = place.cache.join("system.lock");
    let _held = File::create(&path)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    place.say(format!("installing {}", packages.join(" ")));
    provision::install(packages).map_err(|reason| {
        format!("{reason}; install {} yourself and try again", packages.join(" "))
    })
}
