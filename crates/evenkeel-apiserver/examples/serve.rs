//! An API server alone: `serve PORT [--tokens FILE] [--data-dir FOLDER] [--plain]`. Prints the administrator's kubeconfig.

use std::process::ExitCode;

use evenkeel_apiserver::Server;

#[tokio::main]
async fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "stopped");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let value = |flag: &str| {
        let at = arguments.iter().position(|a| a == flag)?;
        arguments.get(at + 1).cloned()
    };
    let port: u16 = arguments.first().map_or(Ok(6443), |p| p.parse())?;
    let mut builder = Server::builder().data_dir(value("--data-dir").map(Into::into));
    if let Some(file) = value("--tokens") {
        builder = builder.tokens_csv(&std::fs::read_to_string(file)?);
    }
    let server = builder.build().await?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let url = format!("https://{}", listener.local_addr()?);
    #[expect(clippy::print_stdout, reason = "this is what the example is for")]
    {
        println!("{}", server.kubeconfig(&url));
    }
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    if arguments.iter().any(|a| a == "--plain") {
        server.serve_plain(listener, stop).await?;
    } else {
        server.serve(listener, stop).await?;
    }
    Ok(())
}
