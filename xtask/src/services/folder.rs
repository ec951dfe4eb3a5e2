//! The private folder of this user's servers. It belongs to this user alone: servers run what stands
//! in it, so a folder that somebody else made beforehand is refused.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::account::{self, Account};
use super::place::Place;

/// Where everything of the servers stands.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) account: Account,
}

impl Folder {
    /// Opens the folder of this user, and creates it at need.
    pub(crate) fn open() -> Result<Self, String> {
        let account = Account::find()?;
        let (uid, _) = account::ours()?;
        let folder = Self { path: path(std::env::var_os("POSTRIDER_SERVICES_DIR"), uid)?, account };
        folder.create(uid).map_err(|error| format!("{}: {error}", folder.path.display()))?;
        let reached = account.command("test").arg("-x").arg(&folder.path).status();
        if !reached.is_ok_and(|status| status.success()) {
            return Err(format!(
                "{}: the account of the servers cannot enter it; choose another folder with \
                 POSTRIDER_SERVICES_DIR",
                folder.path.display()
            ));
        }
        let record = format!("{}:{}\n", account.uid, account.gid);
        let path = folder.path.join("account");
        if fs::read_to_string(&path).ok().as_ref() != Some(&record) {
            fs::write(&path, record).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(folder)
    }

    /// What belongs to the server of this name.
    pub(crate) fn place(&self, name: &str) -> Place {
        Place::new(name, self.path.join(name), self.path.join("cache"), self.account)
    }

    fn create(&self, uid: u32) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        let found = fs::symlink_metadata(&self.path)?;
        if !found.is_dir() || found.uid() != uid {
            return Err(io::Error::other("it is not a folder of this user; nothing was started"));
        }
        // The servers' account must get in where it is not ours.
        let mode = if self.account.uid == uid { 0o700 } else { 0o755 };
        open_to(&self.path, mode)?;
        fs::create_dir_all(self.path.join("cache"))?;
        open_to(&self.path.join("cache"), mode)
    }

    #[cfg(test)]
    pub(crate) fn temporary(name: &str) -> Self {
        let (uid, _) = account::ours().unwrap();
        let path = std::env::temp_dir().join(format!("postrider-x-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let folder = Self { path, account: Account::own().unwrap() };
        folder.create(uid).unwrap();
        folder
    }
}

/// Sets who may do what.
pub(crate) fn open_to(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// `/var/tmp` outlives a restart of the machine, and what is downloaded with it.
fn path(chosen: Option<std::ffi::OsString>, uid: u32) -> Result<PathBuf, String> {
    match chosen.filter(|path| !path.is_empty()) {
        Some(path) => std::path::absolute(path).map_err(|error| error.to_string()),
        None => Ok(PathBuf::from(format!("/var/tmp/postrider-services-{uid}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_users_own_unless_another_is_chosen() {
        let default = path(None, 7).unwrap();
        assert_eq!(default, Path::new("/var/tmp/postrider-services-7"));
        assert_eq!(path(Some("".into()), 7).unwrap(), default);
        assert_eq!(path(Some("/a/b".into()), 7).unwrap(), Path::new("/a/b"));
    }

    #[test]
    fn a_folder_of_somebody_else_is_refused() {
        let folder = Folder::temporary("foreign");
        let (uid, _) = account::ours().unwrap();
        folder.create(uid).unwrap();
        folder.create(uid + 1).expect_err("the owner is another");
        let link = folder.path.join("link");
        std::os::unix::fs::symlink(&folder.path, &link).unwrap();
        let linked = Folder { path: link, account: folder.account };
        linked.create(uid).expect_err("a link may lead anywhere");
        fs::remove_dir_all(&folder.path).unwrap();
    }
}
