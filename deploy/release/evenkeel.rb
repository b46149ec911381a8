class Evenkeel < Formula
  desc "Kubernetes control plane in one process, and drop-in controller manager and scheduler"
  homepage "https://github.com/evenkeel/evenkeel"
  version "@VERSION@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/evenkeel/evenkeel/releases/download/v#{version}/evenkeel-#{version}-aarch64-apple-darwin.tar.gz"
      sha256 "@aarch64-apple-darwin@"
    end
    on_intel do
      url "https://github.com/evenkeel/evenkeel/releases/download/v#{version}/evenkeel-#{version}-x86_64-apple-darwin.tar.gz"
      sha256 "@x86_64-apple-darwin@"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/evenkeel/evenkeel/releases/download/v#{version}/evenkeel-#{version}-aarch64-unknown-linux-musl.tar.gz"
      sha256 "@aarch64-unknown-linux-musl@"
    end
    on_intel do
      url "https://github.com/evenkeel/evenkeel/releases/download/v#{version}/evenkeel-#{version}-x86_64-unknown-linux-musl.tar.gz"
      sha256 "@x86_64-unknown-linux-musl@"
    end
  end

  def install
    bin.install "evenkeel"
    # Names of Kubernetes' own programs stay out of the path.
    libexec.install "kube-controller-manager", "kube-scheduler", "cloud-controller-manager"
    man1.install Dir["man/evenkeel*.1"]
    bash_completion.install "completions/evenkeel.bash" => "evenkeel"
    zsh_completion.install "completions/_evenkeel"
    fish_completion.install "completions/evenkeel.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/evenkeel --version")
  end
end
