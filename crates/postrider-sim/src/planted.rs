//! The bugs that can be planted, as this build knows them: none without probes.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planted {
    /// Its name in the code.
    pub name: &'static str,
    /// The mistake in a sentence.
    pub mistake: &'static str,
}

/// Whether planted bugs and coverage are compiled in.
pub const PROBES: bool = cfg!(postrider_sim);

/// All of them, in the order of the table.
#[cfg(postrider_sim)]
pub fn all() -> Vec<Planted> {
    use postrider_core::probe::Mutant;
    let planted =
        |mutant: &Mutant| Planted { name: mutant.name(), mistake: mutant.mistake().trim() };
    Mutant::ALL.iter().map(planted).collect()
}

/// All of them: none, as the probes are not compiled in.
#[cfg(not(postrider_sim))]
pub fn all() -> Vec<Planted> {
    Vec::new()
}

/// The one of a name.
pub fn named(name: &str) -> Option<Planted> {
    all().into_iter().find(|planted| planted.name == name)
}
