use super::super::tests::fake::{kernel, launcher};
use super::*;
use crate::process::Status;

#[tokio::test]
async fn a_deleted_context_starts_no_kernel() {
    let (kernel, _fake) = kernel().await;
    let (context, launcher) = (Context::of_test(kernel).await, launcher());
    let mut slot = context.acquire().await;
    assert!(slot.kernel(&context, &launcher).await.is_ok());
    context.delete(&launcher);
    let refused = slot.kernel(&context, &launcher).await.err();
    assert!(matches!(refused, Some(StartFailure::Deleted)));
    assert!(slot.kernel.is_none());

    // Nor does a pending restart.
    let (refused, ()) = tokio::join!(context.restart(&launcher), async { drop(slot) });
    assert!(matches!(refused, Err(StartFailure::Deleted)));
}

#[tokio::test]
async fn an_unexpected_kernel_exit_leaves_a_notice_and_a_forced_end_does_not() {
    let ((first, first_fake), (second, second_fake)) = (kernel().await, kernel().await);
    let (context, launcher) = (Context::of_test(first).await, launcher());
    let mut slot = context.acquire().await;
    first_fake.ends.send(Status::Killed(9)).unwrap();
    // No other kernel can start, but the reason is recorded.
    assert!(slot.kernel(&context, &launcher).await.is_err());
    let told = slot.notice.take().unwrap();
    assert_eq!(
        told,
        "The context was restarted: its kernel had ended (signal: killed)"
    );

    slot.kernel = Some(second);
    context.end_kernel(&launcher);
    second_fake.ends.send(Status::Killed(9)).unwrap();
    assert!(slot.kernel(&context, &launcher).await.is_err());
    assert_eq!((slot.kernel.is_none(), slot.notice.take()), (true, None));
}
