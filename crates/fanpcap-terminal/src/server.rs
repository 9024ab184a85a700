//! The part of HTTP/1.1 that a scraper needs (RFC 9112). The server answers `GET` and `HEAD` of
//! `/metrics`, one request per connection, and a few connections at a time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};

use crate::streams;

/// Maximum length of a request's head, in bytes.
const HEAD_MAX: usize = 8 * 1024;

/// Connections that are served at a time. Other connections wait in the listener's queue. Their
/// wait is bounded, because [`PATIENCE`] limits the time of each connection.
const WORKERS: usize = 16;

/// Time limits of a connection.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Time for the request to arrive.
    head: Duration,
    /// Time for the answer to be sent.
    answer: Duration,
    /// Time for the client to close the connection.
    farewell: Duration,
}

const PATIENCE: Patience = Patience {
    head: Duration::from_millis(1500),
    answer: Duration::from_secs(5),
    farewell: Duration::from_millis(500),
};

/// The format's media type.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Reads `PORT`, which means this machine only, or `ADDR:PORT`.
///
/// # Errors
/// The text has neither form.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let here = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port: Option<u16> = text.trim_start_matches(':').parse().ok();
    match port {
        Some(port) => Ok(here(port)),
        None => text.parse().map_err(|_| {
            "write a port, or an address and a port: 9100, 0.0.0.0:9100, [::]:9100".to_owned()
        }),
    }
}

/// The error of a program that can't listen at an address, and what to do.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's own text on other errors suffices"
)]
pub fn not_listening(address: SocketAddr, error: &io::Error) -> Error {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => ": another program listens there",
        ErrorKind::AddrNotAvailable => {
            ": this machine has no such address; 'ip address' lists them"
        }
        ErrorKind::PermissionDenied => ": ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "",
    };
    anyhow!("cannot listen on {address}: {error}{advice}")
}

/// Serves the text that `metrics` returns, until the process ends.
///
/// # Errors
/// The process can't listen at the address.
pub fn serve(
    address: SocketAddr,
    metrics: impl FnMut() -> Result<String> + Send,
) -> Result<ExitCode> {
    let listener = TcpListener::bind(address).map_err(|error| not_listening(address, &error))?;
    let address = listener
        .local_addr()
        .context("reading the listener's address")?;
    streams::note(&format!("fanpcap: serving http://{address}/metrics\n"));
    let metrics = Mutex::new(metrics);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| work(&listener, &metrics));
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// Serves one connection after another. Only one worker at a time collects the metrics.
fn work<M: FnMut() -> Result<String>>(listener: &TcpListener, metrics: &Mutex<M>) {
    loop {
        let connection = listener.accept();
        let mut now = || {
            let metrics = metrics.lock();
            metrics.unwrap_or_else(PoisonError::into_inner)()
        };
        let served = connection.and_then(|(stream, _)| talk(stream, PATIENCE, &mut now));
        if let Err(error) = served {
            // An error of one connection does not stop the server. Pause, because without free
            // descriptors accept(2) would fail again immediately.
            streams::note(&format!("fanpcap: a request failed: {error}\n"));
            thread::sleep(Duration::from_millis(100));
        }
    }
}

struct Answer {
    status: &'static str,
    more: &'static str,
    media_type: &'static str,
    body: String,
}

impl Answer {
    /// An answer that contains only its status.
    fn plain(status: &'static str, more: &'static str) -> Self {
        Self {
            status,
            more,
            media_type: "text/plain; charset=utf-8",
            body: format!("{status}\n"),
        }
    }
}

/// Reads a request and answers it.
fn talk(
    mut stream: TcpStream,
    patience: Patience,
    metrics: &mut impl FnMut() -> Result<String>,
) -> io::Result<()> {
    let deadline = Instant::now() + patience.head;
    let (answer, is_head) = match read_head(&mut stream, deadline) {
        Ok(Head::Whole(head)) => (answer(&head, metrics), head.starts_with(b"HEAD ")),
        Ok(Head::Gone) => return Ok(()),
        Ok(Head::TooLong) => {
            let status = "431 Request Header Fields Too Large";
            (Answer::plain(status, ""), false)
        }
        Err(error) if is_late(&error) => (Answer::plain("408 Request Timeout", ""), false),
        Err(error) => return Err(error),
    };
    let Answer {
        status,
        more,
        media_type,
        body,
    } = answer;
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n{more}Connection: close\r\n\r\n",
        body.len()
    );
    if !is_head {
        bytes += &body;
    }
    write_all(
        &mut stream,
        bytes.as_bytes(),
        Instant::now() + patience.answer,
    )?;
    stream.shutdown(Shutdown::Write)?;
    drain(&mut stream, Instant::now() + patience.farewell);
    Ok(())
}

/// The result of reading a request's head.
enum Head {
    /// The head, perhaps with bytes after it.
    Whole(Vec<u8>),
    /// The client closed the connection without a request.
    Gone,
    /// The head is longer than [`HEAD_MAX`].
    TooLong,
}

fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Head> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let len = match stream.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        head.extend(&bytes[..len]);
        // A line may end in LF alone (RFC 9112, 2.2).
        let is_whole = [&b"\n\r\n"[..], b"\n\n"]
            .iter()
            .any(|&end| head.windows(end.len()).any(|bytes| bytes == end));
        match len {
            _ if head.len() > HEAD_MAX => return Ok(Head::TooLong),
            _ if is_whole => return Ok(Head::Whole(head)),
            0 => return Ok(Head::Gone),
            _ => {}
        }
    }
}

/// Answers according to the request line: method, target, version.
fn answer(head: &[u8], metrics: &mut impl FnMut() -> Result<String>) -> Answer {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Answer::plain("400 Bad Request", "");
    };
    if !version.starts_with("HTTP/1.") {
        return Answer::plain("400 Bad Request", "");
    }
    // A proxy sends the absolute form, which starts with the server's address.
    let path = target
        .strip_prefix("http://")
        .map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
    let path = path.split('?').next().unwrap_or_default();
    if !matches!(path, "/" | "/metrics") {
        return Answer::plain("404 Not Found", "");
    }
    if !matches!(method, "GET" | "HEAD") {
        return Answer::plain("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    }
    if path == "/" {
        return Answer {
            body: "The metrics are at /metrics.\n".to_owned(),
            ..Answer::plain("200 OK", "")
        };
    }
    match metrics() {
        Ok(body) => Answer {
            status: "200 OK",
            more: "",
            media_type: MEDIA_TYPE,
            body,
        },
        Err(error) => {
            streams::note(&format!("fanpcap: {error:#}\n"));
            Answer::plain("500 Internal Server Error", "")
        }
    }
}

/// Writes all bytes before the deadline, even if the client reads slowly.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => bytes = &bytes[written?..],
        }
    }
    Ok(())
}

/// Reads the rest of the request. Closing with unread bytes would reset the connection, and the
/// client might lose the answer.
fn drain(stream: &mut TcpStream, deadline: Instant) {
    let mut bytes = [0; 1024];
    for _ in 0..HEAD_MAX {
        let Ok(left) = left(deadline) else { return };
        let waits = stream.set_read_timeout(Some(left));
        if waits.is_err() || !stream.read(&mut bytes).is_ok_and(|len| len > 0) {
            return;
        }
    }
}

/// The time until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

#[cfg(test)]
mod tests;
