//! Enters a group of a poller.

use crate::port::PolledPort;
use crate::tasks::{self, Tasks};
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::unix::{message, named};
use fanpcap_linux::wait::{clock, events};
use fanpcap_poll::PoolFile;
use fanpcap_poll::message::{
    Answer, Hello, LONGEST, Malformed, Program, Refused, Request, Welcome,
};
use fanpcap_reader::{GroupTasks, Input, Ring};
use fanpcap_ring::PoolWords;
use std::error::Error;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// Why a handle is no member of a poller's group.
#[derive(Debug)]
pub enum EnterError {
    /// The poller's socket can't be reached.
    Unreachable(io::Error),
    /// The poller has not answered in time, or has closed the connection.
    Silent,
    /// The poller refuses the handle.
    Refused(Refused),
    /// The messages of the other side are not those of this version, or the request is wrong.
    Malformed(Malformed),
    /// What the poller has sent is no pool, or can't be mapped.
    Pool(io::Error),
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "can't reach the device's poller: {error}"),
            Self::Silent => f.write_str("the device's poller does not answer"),
            Self::Refused(refused) => f.write_str(&refused.text),
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Pool(error) => write!(f, "the pool of the device's poller: {error}"),
        }
    }
}

impl Error for EnterError {}

/// A member of a poller's group.
#[derive(Debug)]
pub struct PolledMember {
    /// Names the poller: `packet:eth0`.
    at: Arc<str>,
    connection: Arc<OwnedFd>,
    pool: PoolFile,
    bell: Arc<OwnedFd>,
    steering: Option<Program>,
    welcome: Welcome,
}

/// Enters a group of the poller whose socket has this name. Waits at most for `limit`, until the
/// poller has room for a connection and answers. The member gets its share when its reader runs the
/// group's tasks for the first time.
///
/// # Errors
/// See [`EnterError`].
pub fn enter(
    directory: &Directory,
    name: &OsStr,
    hello: &Hello,
    limit: Duration,
) -> Result<PolledMember, EnterError> {
    enter_or_keep(directory, name, hello, limit, &mut None)
}

/// Enters a group as [`enter`] does. If the poller has not answered in time, keeps the connection
/// in `asked`. A later call goes on waiting for the answer on this connection, and does not send
/// its own hello: a poller that is late would be later with each hello of a handle that has given
/// up.
///
/// # Errors
/// See [`EnterError`].
pub fn enter_or_keep(
    directory: &Directory,
    name: &OsStr,
    hello: &Hello,
    limit: Duration,
    asked: &mut Option<OwnedFd>,
) -> Result<PolledMember, EnterError> {
    let due_ns = clock::monotonic_ns().saturating_add(nanoseconds(limit));
    let connection = match asked.take() {
        Some(connection) => connection,
        None => ask(directory, name, hello, limit)?,
    };
    let Some((answer, descriptors)) = await_answer(&connection, due_ns)? else {
        *asked = Some(connection);
        return Err(EnterError::Silent);
    };
    match answer {
        Answer::Welcome(mut welcome) => {
            let opened = welcome.open(descriptors).map_err(EnterError::Pool)?;
            Ok(PolledMember {
                at: name.to_string_lossy().into(),
                connection: Arc::new(connection),
                pool: opened.pool,
                bell: Arc::new(opened.bell),
                steering: welcome.steering.take(),
                welcome,
            })
        }
        Answer::Refused(refused) => Err(EnterError::Refused(refused)),
        Answer::Takeover(_) | Answer::Hold | Answer::GoOn => {
            Err(EnterError::Malformed(Malformed::Field("answer")))
        }
    }
}

/// Connects to a poller, and sends the hello.
fn ask(
    directory: &Directory,
    name: &OsStr,
    hello: &Hello,
    limit: Duration,
) -> Result<OwnedFd, EnterError> {
    let hello = hello.encode().map_err(EnterError::Malformed)?;
    let connection = named::connect(directory, name, limit).map_err(EnterError::Unreachable)?;
    message::send(connection.as_fd(), &hello, &[]).map_err(EnterError::Unreachable)?;
    Ok(connection)
}

/// The poller's answer and its descriptors.
type Answered = (Answer, Vec<OwnedFd>);

/// Waits for the poller's answer until the monotonic clock is at `due_ns`; `None` if it has not
/// come by then.
fn await_answer(connection: &OwnedFd, due_ns: u64) -> Result<Option<Answered>, EnterError> {
    let mut buffer = vec![0; LONGEST];
    loop {
        match message::receive(connection.as_fd(), &mut buffer, DESCRIPTORS) {
            Ok(Some(message)) => {
                let bytes = buffer.get(..message.len).unwrap_or_default();
                let answer = Answer::decode(bytes).map_err(EnterError::Malformed)?;
                return Ok(Some((answer, message.descriptors)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) => return Err(EnterError::Silent),
            // The poller has ended, and has not read the hello.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(EnterError::Silent);
            }
            Err(error) => return Err(EnterError::Unreachable(error)),
        }
        let left = due_ns.saturating_sub(clock::monotonic_ns());
        if left == 0 {
            return Ok(None);
        }
        match events::poll(&[connection.as_fd()], Some(Duration::from_nanos(left))) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(EnterError::Unreachable(error));
            }
            _ => {}
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// errno(3).
const EMSGSIZE: i32 = 90;

/// The most descriptors of an answer.
const DESCRIPTORS: usize = 2;

impl PolledMember {
    /// The member's slot in its group.
    pub fn slot(&self) -> u8 {
        self.welcome.slot
    }

    /// The number of the member's group, if it has one.
    pub fn group(&self) -> Option<u16> {
        self.welcome.group
    }

    /// The steering program of the member's group, if the member has not said it.
    pub fn steering(&self) -> Option<&Program> {
        self.steering.as_ref()
    }

    /// The number of the member's poller.
    pub fn poller(&self) -> u64 {
        self.welcome.poller
    }

    /// Sends a frame by the poller. See [`fanpcap_engine::PolledIo::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        if !self.welcome.may_send {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let request = Request::Frame(frame.to_vec()).encode();
        let too_long = |_| io::Error::from_raw_os_error(EMSGSIZE);
        message::send(self.connection.as_fd(), &request.map_err(too_long)?, &[])
    }

    /// Bytes of the pool.
    pub fn bytes(&self) -> u64 {
        self.welcome.pool.file_len().unwrap_or_default().into()
    }

    /// The reader's input. `timeout` is the longest time until a packet is delivered.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, and other errors of mmap(2) and epoll_ctl(2).
    pub fn input(&self, timeout: Option<Duration>) -> io::Result<Input> {
        let (connection, bell) = (Arc::clone(&self.connection), Arc::clone(&self.bell));
        let at = Arc::clone(&self.at);
        let port = PolledPort::new(at, connection, bell, self.pool.map_words()?)?;
        Ok(Input {
            ring: Ring::Pool(tasks::pool(self.pool.map()?, &self.welcome)),
            port: Arc::new(port),
            timeout,
        })
    }

    /// The member's tasks for its group, which its reader runs.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn tasks(&self) -> io::Result<Arc<dyn GroupTasks>> {
        Ok(self.own_tasks()?)
    }

    pub(crate) fn own_tasks(&self) -> io::Result<Arc<Tasks>> {
        let tasks = Tasks::new(Arc::clone(&self.connection), self.welcome.clone())?;
        Ok(Arc::new(tasks))
    }

    /// The words in which the member tells the watchers of its poller about its packets
    /// ([`PoolFile::figures`]).
    ///
    /// # Errors
    /// The errors of mmap(2).
    pub fn figures(&self) -> io::Result<[Word; 3]> {
        self.pool.figures()
    }

    /// The pool's words, which have its counters.
    pub(crate) fn words(&self) -> io::Result<PoolWords> {
        self.pool.map_words()
    }
}
