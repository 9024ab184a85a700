//! Requests and answers over a local connection.

use super::*;

/// The answer to the bytes of `request`; empty if the server sends no answer. If `ends`, the client
/// closes its sending side after the request.
fn answered(request: &[u8], patience: Patience, ends: bool) -> String {
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
fn lines_may_end_in_lf_alone_and_the_root_says_where_to_look() {
    let get = said("GET /metrics HTTP/1.1\nHost: x\n\n");
    assert!(
        get.starts_with("HTTP/1.1 200 ") && get.ends_with("x 1\n"),
        "{get}"
    );
    let root = said("GET / HTTP/1.1\r\n\r\n");
    assert!(
        root.starts_with("HTTP/1.1 200 ") && root.ends_with(" /metrics.\n"),
        "{root}"
    );
}

#[test]
fn all_else_is_refused_by_its_status() {
    for (request, status) in [
        ("POST / HTTP/1.1\r\n\r\n", "405 "),
        ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 "),
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405 ",
        ),
        ("GET http://x/y HTTP/1.1\r\n\r\n", "404 "),
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
    let hasty = Patience {
        head: Duration::from_millis(50),
        ..PATIENCE
    };
    let answer = answered(b"GET /metr", hasty, false);
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
