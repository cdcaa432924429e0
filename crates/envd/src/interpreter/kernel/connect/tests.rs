use std::net::Ipv4Addr;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn accept(listener: &TcpListener) -> Socket {
    let (stream, _) = listener.accept().await.unwrap();
    Socket::over(stream, Role::Dealer).await.unwrap()
}

/// Frames that answer the next request of a client.
async fn answer(session: &Session, shell: &mut Socket) -> Vec<Bytes> {
    let message = shell.next().await.unwrap();
    let asked: Value = serde_json::from_slice(&message.frames[2]).unwrap();
    let header = json!({"msg_type": "status"}).to_string();
    let parent = json!({"msg_id": asked["msg_id"]}).to_string();
    session.frames(header.into(), parent.into(), b"{}".to_vec())
}

#[tokio::test]
async fn another_process_on_a_kernels_port_is_not_mistaken_for_it() {
    let (shells, shell) = listen().await;
    let (heards, iopub) = listen().await;
    let (controls, control) = listen().await;
    let mut session = Session::new();
    let theirs = session.clone();
    let kernel = async {
        // One stays silent, one disconnects, one never answers.
        let silent = shells.accept().await.unwrap();
        drop(accept(&shells).await);
        let mut others = vec![accept(&heards).await, accept(&controls).await];
        for socket in [&shells, &heards, &controls] {
            others.push(accept(socket).await);
        }
        let mut shell = accept(&shells).await;
        let mut iopub = accept(&heards).await;
        let control = accept(&controls).await;
        let frames = answer(&theirs, &mut shell).await;
        shell.send(&frames).await.unwrap();
        iopub.send(&frames).await.unwrap();
        (silent, others, shell, iopub, control)
    };
    let ports = Ports::of_test([shell, iopub, control]);
    let ([mut shell, ..], (_, _, mut their_shell, ..)) =
        tokio::join!(to(ports, &mut session), kernel);
    let (_, frames) = session.request("kernel_info_request", &EmptyContent {});
    shell.send(&frames).await.unwrap();
    answer(&theirs, &mut their_shell).await;
}
