package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
)

// GatewayStatus is what the lab reads of the gateway's status document.
type GatewayStatus struct {
	GatewayID string `json:"gateway_id"`
}

// GatewayStatus asks the gateway for its status document over its socket.
func (s *Site) GatewayStatus(ctx context.Context) (GatewayStatus, error) {
	var status GatewayStatus
	err := getJSON(ctx, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.path("gateway.sock"))
	}, "http://gateway/status", &status)
	return status, err
}

// getJSON fetches a document over a connection of its own.
func getJSON(ctx context.Context, dial Dialer, url string, document any) error {
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read status: %s", response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(document); err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	return nil
}
