/** An error boundary: an error in a panel stays in that panel, with a retry. */

import { Component } from "react";

interface Props {
  what: string;
  children: React.ReactNode;
}

export class Failing extends Component<Props, { error: Error | null }> {
  override state = { error: null as Error | null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <div className="empty" role="alert">
        <p>
          {this.props.what} cannot be shown: {this.state.error.message}
        </p>
        <button onClick={() => this.setState({ error: null })}>Try again</button>{" "}
        <button onClick={() => location.reload()}>Reload the page</button>
      </div>
    );
  }
}
