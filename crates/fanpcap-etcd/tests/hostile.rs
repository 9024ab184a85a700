//! A server that is not etcd. The server's answers must not make a call panic, use unlimited
//! memory, or exceed its deadline.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_etcd::{CallError, Client, Failure, Keys, Limits, Settings};

const LIMITS: Limits = Limits {
    connect: Duration::from_millis(200),
    attempt: Duration::from_millis(300),
    call: Duration::from_millis(600),
    quiet: Duration::from_millis(300),
};

/// A client of a server that calls `serve` for each connection.
fn client(serve: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + 'static) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 4096];
            // An error is expected, because the client gives up in these tests.
            let _ = stream.read(&mut request).and_then(|_| serve(&mut stream));
        }
    });
    let settings = Settings {
        endpoints: vec![endpoint.parse().expect("a URL")],
        limits: LIMITS,
        ..Settings::default()
    };
    Client::new(&settings).expect("no file is read")
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

/// A call's error, which must come by the deadline.
fn error_of(client: &Client) -> CallError {
    let begun = Instant::now();
    let answer = client.range(&Keys::One(b"/k".to_vec()));
    let error = answer.expect_err("no etcd answers");
    // On a busy machine, the error may come some time after the deadline. Without a deadline, the
    // call would never end.
    assert!(begun.elapsed() < LIMITS.call + Duration::from_secs(60));
    error
}

#[test]
fn answers_that_are_not_etcds_are_told_as_such() {
    let bodies = [
        "",
        "{",
        "[]",
        "5",
        "{}",
        r#"{"kvs":[]}"#,
        r#"{"header":{"revision":"9"},"kvs":5}"#,
        r#"{"header":{"revision":"9"},"kvs":[{"key":"?"}]}"#,
        r#"{"header":{"revision":"x"}}"#,
        r#"{"header":{"revision":"9"},"kvs":[{"key":"QQ==","mod_revision":1e99}]}"#,
    ];
    for body in bodies {
        let client = client(move |stream| stream.write_all(answer("200 OK", body).as_bytes()));
        let error = error_of(&client);
        assert!(error.failure == Failure::Answer, "{body}: {error:?}");
    }
    for status in ["404 Not Found", "502 Bad Gateway", "307 Temporary Redirect"] {
        let client = client(move |stream| stream.write_all(answer(status, "<html>").as_bytes()));
        let error = error_of(&client);
        assert!(error.failure == Failure::Answer, "{status}: {error:?}");
    }
}

#[test]
fn etcds_errors_are_told_in_its_words_by_each_version() {
    let bodies = [
        r#"{"error":"permission denied","message":"permission denied","code":7}"#,
        r#"{"error":"permission denied","code":7}"#,
        r#"{"code":7,"message":"permission denied","details":[]}"#,
    ];
    for body in bodies {
        let client =
            client(move |stream| stream.write_all(answer("403 Forbidden", body).as_bytes()));
        let CallError {
            failure, reason, ..
        } = error_of(&client);
        assert_eq!(failure, Failure::Refused(7), "{body}");
        assert_eq!(reason, "permission denied");
    }
}

#[test]
fn silence_and_endless_answers_end_by_the_deadline() {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    let silent = client(|_| {
        thread::sleep(Duration::from_secs(1));
        Ok(())
    });
    let drip = client(move |stream| {
        stream.write_all(head.as_bytes())?;
        loop {
            stream.write_all(b" ")?;
            thread::sleep(Duration::from_millis(20));
        }
    });
    let flood = client(move |stream| {
        stream.write_all(head.as_bytes())?;
        let block = [b' '; 65536];
        loop {
            stream.write_all(&block)?;
        }
    });
    for client in [silent, drip, flood] {
        let error = error_of(&client);
        assert_eq!(error.failure, Failure::Unreachable, "{error:?}");
    }
}

#[test]
fn a_watch_that_is_none_ends() {
    let watches = [
        "",
        "\n",
        "{}\n",
        "{\"result\":{}}\n",
        "{\"result\":{\"created\":true",
        "{\"result\":{\"created\":true,\"canceled\":true,\"cancel_reason\":\"no\"}}\n",
    ];
    for body in watches {
        let client = client(move |stream| stream.write_all(answer("200 OK", body).as_bytes()));
        assert!(
            client.watch(&Keys::One(b"/k".to_vec()), 1).is_err(),
            "{body:?}"
        );
    }
    let created = "{\"result\":{\"created\":true}}\n{\"result\":{\"events\":[{\"kv\":5}]}}\n";
    let client = client(move |stream| stream.write_all(answer("200 OK", created).as_bytes()));
    let mut watch = client.watch(&Keys::One(b"/k".to_vec()), 1).unwrap();
    assert!(watch.wait().is_err());
}
