//! Reads and sets the list of the interrupts that irqbalance(1) leaves alone. This service moves
//! the other interrupts between CPUs.

use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::unix::named;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The directory of irqbalance's socket. Only root can use the socket. irqbalance's unit file
/// creates the directory.
pub(crate) const DIRECTORY: &str = "/run/irqbalance";

/// The longest wait for an answer. A running irqbalance answers at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum length in bytes of a message that irqbalance up to 1.9.4 reads (irqbalance.c,
/// `sock_handle()`).
const MESSAGE_MAX: usize = 499;

/// The interrupts that irqbalance leaves alone by request.
///
/// # Errors
/// `NotFound` if no irqbalance listens, `PermissionDenied` if the caller is not root.
pub(crate) fn left_alone(directory: &Path) -> io::Result<Vec<u32>> {
    let answer = ask(directory, "setup")?;
    // An answer is like `SLEEP 10 IRQ 41 LOAD 0 DIFF 0 CLASS 0 IRQ 42 ... BANNED 0`.
    let mut words = answer.split(' ');
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if word == "IRQ" {
            found.extend(words.next().and_then(|number| number.parse::<u32>().ok()));
        }
    }
    Ok(found)
}

/// Makes irqbalance leave alone these interrupts and no others. irqbalance complies at its next
/// check of the load, before it moves any interrupt.
///
/// # Errors
/// As [`left_alone`], and `InvalidInput` if the interrupts do not fit into one message.
pub(crate) fn leave_alone(directory: &Path, interrupts: &[u32]) -> io::Result<()> {
    let message = message(interrupts).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "irqbalance takes no list of so many interrupts",
        )
    })?;
    ask(directory, &message).map(drop)
}

/// Whether these interrupts fit into one message.
pub(crate) fn takes(interrupts: &[u32]) -> bool {
    message(interrupts).is_some()
}

/// The message to irqbalance, with a zero byte at its end. irqbalance up to 1.8.0 reads the list to
/// the next zero byte, but does not itself end the list with a zero byte.
fn message(interrupts: &[u32]) -> Option<String> {
    let mut message = "settings ban irqs".to_owned();
    for interrupt in interrupts {
        // Writing to a String can't fail.
        let _ = write!(message, " {interrupt}");
    }
    if interrupts.is_empty() {
        message.push_str(" NONE");
    }
    message.push('\0');
    (message.len() <= MESSAGE_MAX).then_some(message)
}

/// Sends a message to the irqbalance that listens and returns its answer.
fn ask(directory: &Path, message: &str) -> io::Result<String> {
    let directory = Directory::open(directory)?;
    let mut problem = io::ErrorKind::NotFound.into();
    for name in directory.names() {
        // A killed irqbalance leaves its socket behind. A stopped irqbalance accepts no connection.
        match named::connect_stream(&directory, &name, PATIENCE) {
            Ok(socket) => return exchange(socket.into(), message),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

fn exchange(mut socket: UnixStream, message: &str) -> io::Result<String> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.write_all(message.as_bytes())?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Answers `times` messages as irqbalance 1.9.2 does.
    fn irqbalance(listener: &UnixListener, times: usize) -> io::Result<Vec<String>> {
        let mut banned = vec!["24".to_owned()];
        let mut asked = Vec::new();
        for _ in 0..times {
            let (mut socket, _) = listener.accept()?;
            let mut message = [0; 500];
            let len = socket.read(&mut message)?;
            let message = String::from_utf8_lossy(&message[..len]).into_owned();
            if let Some(list) = message.strip_prefix("settings ban irqs ") {
                let numbers = list
                    .trim_end_matches('\0')
                    .split(' ')
                    .filter(|&word| word != "NONE");
                banned = numbers.map(str::to_owned).collect();
            } else {
                let of = |it: &String| format!("IRQ {it} LOAD 0 DIFF 0 CLASS 0 ");
                let list: String = banned.iter().map(of).collect();
                write!(socket, "SLEEP 10 {list}BANNED 00000000")?;
            }
            asked.push(message);
        }
        Ok(asked)
    }

    #[test]
    fn the_list_is_replaced_as_a_whole() {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.file("run");
        fs::create_dir(&directory).unwrap();
        // Leave a socket at which no process listens, as a killed irqbalance does.
        drop(UnixListener::bind(directory.join("irqbalance1.sock")).unwrap());
        let none = left_alone(&directory).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(directory.join("irqbalance2.sock")).unwrap();
        let asked = thread::scope(|scope| {
            let server = scope.spawn(|| irqbalance(&listener, 5));
            assert_eq!(left_alone(&directory).unwrap(), [24]);
            leave_alone(&directory, &[24, 41]).unwrap();
            assert_eq!(left_alone(&directory).unwrap(), [24, 41]);
            leave_alone(&directory, &[]).unwrap();
            assert!(left_alone(&directory).unwrap().is_empty());
            server.join().unwrap().unwrap()
        });
        assert_eq!(asked[1], "settings ban irqs 24 41\0");
        assert_eq!(asked[3], "settings ban irqs NONE\0");
    }

    #[test]
    fn a_list_that_would_be_cut_off_is_refused() {
        let long: Vec<u32> = (1000..1100).collect();
        let refused = leave_alone(Path::new("/nonexistent"), &long).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        // The messages have 498 and 503 bytes.
        assert!(takes(&long[..96]) && !takes(&long[..97]));
        let none = leave_alone(Path::new("/nonexistent"), &[41]).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
