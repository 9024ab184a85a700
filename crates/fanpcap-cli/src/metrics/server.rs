//! As much of HTTP/1.1 as a scraper needs (RFC 9112): `GET` and `HEAD` of `/metrics`, one request a connection, one
//! connection at a time.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The most bytes of a request's head.
const HEAD_MAX: usize = 8 * 1024;

/// The most time that a request may take to arrive, and its answer to leave.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most time that is waited for the other side to close. Meanwhile nobody else is served.
const FAREWELL: Duration = Duration::from_secs(1);

/// The format's media type.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Reads `PORT`, on this machine only, or `ADDR:PORT`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let here = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port: Option<u16> = text.trim_start_matches(':').parse().ok();
    match port {
        Some(port) => Ok(here(port)),
        None => text.parse().map_err(|_| {
            "write a port, or an address and a port: 9100, 0.0.0.0:9100, [::]:9100".to_owned()
        }),
    }
}

/// Serves what `metrics` returns until the process is ended.
///
/// # Errors
/// The address can't be listened at.
pub(crate) fn serve(
    address: SocketAddr,
    mut metrics: impl FnMut() -> Result<String>,
) -> Result<ExitCode> {
    let listener = TcpListener::bind(address).with_context(|| format!("listening at {address}"))?;
    let address = listener.local_addr().context("the address listened at")?;
    eprintln!("fanpcap: serving http://{address}/metrics");
    loop {
        let connection = listener.accept();
        let served = connection.and_then(|(stream, _)| talk(stream, PATIENCE, &mut metrics));
        if let Err(error) = served {
            // The next scraper is served all the same. Without descriptors accept would fail at once again.
            eprintln!("fanpcap: a request to {address}: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// An answer.
struct Answer {
    status: &'static str,
    more: &'static str,
    media_type: &'static str,
    body: String,
}

impl Answer {
    /// One that says no more than its status.
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
    patience: Duration,
    metrics: &mut impl FnMut() -> Result<String>,
) -> io::Result<()> {
    let deadline = Instant::now() + patience;
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
    write_all(&mut stream, bytes.as_bytes(), Instant::now() + patience)?;
    stream.shutdown(Shutdown::Write)?;
    drain(&mut stream, Instant::now() + patience.min(FAREWELL));
    Ok(())
}

/// What came of a request's head.
enum Head {
    /// The head, perhaps with bytes after it.
    Whole(Vec<u8>),
    /// The other side closed without a request.
    Gone,
    /// More than [`HEAD_MAX`].
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
        let is_whole = head.windows(4).any(|end| end == b"\r\n\r\n");
        match len {
            _ if head.len() > HEAD_MAX => return Ok(Head::TooLong),
            _ if is_whole => return Ok(Head::Whole(head)),
            0 => return Ok(Head::Gone),
            _ => {}
        }
    }
}

/// Decides by the request line: method, target, version.
fn answer(head: &[u8], metrics: &mut impl FnMut() -> Result<String>) -> Answer {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next())
    else {
        return Answer::plain("400 Bad Request", "");
    };
    if !version.starts_with("HTTP/1.") {
        return Answer::plain("400 Bad Request", "");
    }
    // A proxy's form has the server's address in front.
    let path = target
        .strip_prefix("http://")
        .map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
    let path = path.split('?').next().unwrap_or_default();
    if path != "/metrics" {
        return Answer::plain("404 Not Found", "");
    }
    if !matches!(method, "GET" | "HEAD") {
        return Answer::plain("405 Method Not Allowed", "Allow: GET, HEAD\r\n");
    }
    match metrics() {
        Ok(body) => Answer {
            status: "200 OK",
            more: "",
            media_type: MEDIA_TYPE,
            body,
        },
        Err(error) => {
            eprintln!("fanpcap: {error:#}");
            Answer::plain("500 Internal Server Error", "")
        }
    }
}

/// Writes all of it, however slowly the other side reads, but not beyond the deadline.
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

/// Reads what is still to come: closing before would reset the connection, and the answer might be lost.
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
mod tests {
    use super::*;
    use std::thread;

    /// What is answered to these bytes; with `more` sent until there is an answer, or nothing.
    fn answered(request: &[u8], patience: Duration, ends: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            talk(stream, patience, &mut || Ok("x 1\n".to_owned()))
        });
        client.write_all(request).unwrap();
        if ends {
            client.shutdown(Shutdown::Write).unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        drop(client);
        server.join().unwrap().unwrap();
        answer
    }

    fn said(request: &str) -> String {
        answered(request.as_bytes(), PATIENCE, false)
    }

    #[test]
    fn get_and_head_of_metrics_are_served() {
        let get = said("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n"), "{get}");
        assert!(get.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        assert!(
            get.ends_with("\r\nContent-Length: 4\r\nConnection: close\r\n\r\nx 1\n"),
            "{get}"
        );
        let absolute = said("GET http://x:1/metrics HTTP/1.1\r\nHost: x:1\r\n\r\n");
        assert!(absolute.starts_with("HTTP/1.1 200 "), "{absolute}");
        let head = said("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(
            head.contains("\r\nContent-Length: 4\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
    }

    #[test]
    fn all_else_is_refused_by_its_status() {
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404 "),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 "),
            (
                "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
                "405 ",
            ),
            ("GET http://metrics HTTP/1.1\r\n\r\n", "404 "),
            ("GET /metrics\r\n\r\n", "400 "),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400 "),
            ("GET /metrics HTTP/2\r\n\r\n", "400 "),
            ("\r\n\r\n", "400 "),
            ("\u{0}\u{ff}\r\n\r\n", "400 "),
        ] {
            let answer = said(request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{request:?}: {answer}"
            );
        }
    }

    #[test]
    fn a_request_without_end_is_cut_short() {
        let long = "GET /metrics HTTP/1.1\r\nX: ".to_owned() + &"x".repeat(2 * HEAD_MAX);
        let answer = answered(long.as_bytes(), PATIENCE, true);
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[test]
    fn a_slow_request_is_given_up() {
        let answer = answered(b"GET /metr", Duration::from_millis(50), false);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert_eq!(answered(b"GET /metr", PATIENCE, true), "");
    }

    #[test]
    fn a_failure_is_a_status_and_not_the_end() {
        let answer = answer(b"GET /metrics HTTP/1.1\r\n\r\n", &mut || {
            anyhow::bail!("no")
        });
        assert_eq!(answer.status, "500 Internal Server Error");
    }

    #[test]
    fn a_port_alone_is_for_this_machine() {
        for text in ["9100", ":9100", "127.0.0.1:9100"] {
            assert_eq!(
                address(text),
                Ok(SocketAddr::from(([127, 0, 0, 1], 9100))),
                "{text}"
            );
        }
        assert_eq!(
            address("0.0.0.0:1").map(|it| it.ip().is_loopback()),
            Ok(false)
        );
        assert!(address("[::]:1").is_ok());
        assert!(address("localhost").is_err() && address("70000").is_err());
    }
}
