"""What people read: text, HTML pages and plots of runs, devices and studies."""
