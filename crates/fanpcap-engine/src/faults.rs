//! Steps at which a test ends the process: each step of a change has a number. Without the feature
//! `faults`, this module does nothing. The released library is built without the feature.

/// Marks a step. Call this function before each step of a change.
#[cfg(not(feature = "faults"))]
pub fn step() {}

#[cfg(feature = "faults")]
pub use counted::step;

#[cfg(feature = "faults")]
mod counted {
    use fanpcap_linux::file::shared::{self, Word};
    use fanpcap_linux::process::child;
    use std::env;
    use std::fs::File;
    use std::sync::OnceLock;
    use std::thread;

    /// The number of steps so far, and the number of the step at which the process is killed.
    static WORDS: OnceLock<Option<[Word; 2]>> = OnceLock::new();

    /// Counts the step in the file that `FANPCAP_FAULTS` names. Kills the process at the step whose
    /// number the file also has.
    pub fn step() {
        let open = || {
            let path = env::var_os("FANPCAP_FAULTS")?;
            let file = File::options().read(true).write(true).open(path).ok()?;
            shared::join(&file).ok()
        };
        let Some([done, last]) = WORDS.get_or_init(open) else {
            return;
        };
        done.add(1);
        if done.get() == last.get() {
            let _ = child::signal(std::process::id(), child::SIGKILL);
            loop {
                thread::park();
            }
        }
    }
}
