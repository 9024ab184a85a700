//! A coordinator's file: its state, which it reads after a restart.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use fanpcap_cluster::control::{BodyError, ClusterId, State};
use fanpcap_linux::file::directory::{open_regular, read_at_most};

/// Maximum size of the file, in bytes.
const LONGEST: u64 = 1 << 20;

/// A coordinator's file.
#[derive(Debug)]
pub(super) struct Store(pub(super) PathBuf);

impl Store {
    /// Opens the file of coordinator `number`, and reads its state; `None` without a file.
    pub(super) fn open(
        directory: &Path,
        cluster: ClusterId,
        number: u8,
    ) -> Result<(Self, Option<State>)> {
        let made = fs::create_dir_all(directory);
        made.with_context(|| format!("making {}", directory.display()))?;
        let path = directory.join(format!("coordinator-{:016x}-{number}", cluster.0));
        let shown = path.display();
        let state = match open_regular(&path) {
            Ok(file) => {
                let bytes = read_at_most(file, LONGEST);
                let bytes = bytes.with_context(|| format!("reading {shown}"))?;
                let state = State::decode(&bytes).map_err(|error| {
                    if matches!(error, BodyError::Topology(_)) {
                        anyhow!("{shown}: {error}. If no later version ran here, remove the file")
                    } else {
                        anyhow!(error).context(format!("{shown} is damaged; remove it"))
                    }
                });
                Some(state?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("opening {shown}")),
        };
        Ok((Self(path), state))
    }

    /// Replaces the file's contents. Only the file's owner may read them, because the initial value
    /// of the hash is secret.
    pub(super) fn write(&self, state: &State) -> io::Result<()> {
        let new = self.0.with_extension("new");
        // A coordinator that crashed may have left this file, and then `create_new` would fail.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&state.encode())?;
        file.sync_all()?;
        fs::rename(new, &self.0)?;
        // After a power cut, the new name exists only if the directory was written to the disk too.
        let directory = self.0.parent().unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use fanpcap_buckets::{Slot, layout::BUCKETS};
    use fanpcap_cluster::control::Term;
    use fanpcap_cluster::{Revision, Topology};
    use fanpcap_select::Selection;
    use fanpcap_testkit::{Scratch, pipe};

    use super::*;

    /// A topology that a coordinator can't read, because it has no nodes. The tests use it in place
    /// of a later version's topology.
    fn unreadable() -> Topology {
        Topology {
            epoch: 1,
            selection: Selection::default(),
            nodes: Vec::new(),
            owners: Box::new([Some(Slot(0)); BUCKETS]),
            new_owners: None,
            analyzers: Vec::new(),
            filter: None,
        }
    }

    #[test]
    fn what_is_written_is_there_in_the_next_life() {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.file("state");
        let open = || Store::open(&directory, ClusterId(5), 3);
        let (store, none) = open().unwrap();
        assert_eq!(none, None);
        let state = State {
            term: Term(77),
            ..State::default()
        };
        store.write(&state).unwrap();
        assert_eq!(open().unwrap().1, Some(state.clone()));
        let later = State {
            topology: Some((Revision(7), Box::new(unreadable()))),
            ..state.clone()
        };
        store.write(&later).unwrap();
        let error = format!("{:#}", open().unwrap_err());
        assert!(error.contains("topology 7 can't be read"), "{error}");
        assert!(error.contains("If no later version"), "{error}");
        fs::write(&store.0, "garbage").unwrap();
        let error = open().unwrap_err();
        assert!(format!("{error:#}").contains("remove it"), "{error:#}");
        // The path is a pipe, which is refused for reading and for writing.
        let path = store.0.clone();
        fs::remove_file(&path).unwrap();
        let opened = pipe::opened(&path, move |_| {
            Store::open(&directory, ClusterId(5), 3).map(drop)
        });
        let error = opened.unwrap().unwrap_err();
        assert!(
            format!("{error:#}").contains("not a regular file"),
            "{error:#}"
        );
        let new = path.with_extension("new");
        let written = pipe::opened(&new, move |new| {
            store.write(&state)?;
            fs::write(new, "anything")
        });
        written.unwrap().unwrap();
        assert_eq!(
            State::decode(&fs::read(&path).unwrap()).unwrap().term,
            Term(77)
        );
    }
}
